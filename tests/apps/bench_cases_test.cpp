// The benchmark's pairs are fair: a looped case has the budgets of its Baseline at the context that
// is measured, and steps over the same tokens.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "apps/bench/cases.h"
#include "moe/budget.h"

namespace smelt {
namespace {

const BenchCase& find_case(const std::string& name) {
  for (const BenchCase& c : bench_cases())
    if (c.name == name) return c;
  throw std::out_of_range("no case " + name);
}

Budget budget_of(const BenchCase& c) {
  return smelt::budget_of(c.model, double(c.seq_len + 1) / 2);
}

double ratio(double value, double reference) { return value / reference; }

const char* const kBaselines[] = {"A", "B"};

BOOST_AUTO_TEST_SUITE(bench_cases)

BOOST_DATA_TEST_CASE(a_pair_has_equal_budgets, boost::unit_test::data::make(kBaselines), name) {
  const Budget b = budget_of(find_case(name));
  const Budget s = budget_of(find_case(std::string(name) + "-smelt"));
  const double F = ratio(s.flops_per_token, b.flops_per_token);
  const double N = ratio(double(s.params_non_embedding), double(b.params_non_embedding));
  const double kv = ratio(double(s.kv_values_per_token), double(b.kv_values_per_token));
  BOOST_TEST_MESSAGE(name << ": F " << F << ", N " << N << ", KV " << kv);
  BOOST_TEST(std::abs(F - 1) < 0.04);
  BOOST_TEST(std::abs(N - 1) < 0.01);
  BOOST_TEST(std::abs(kv - 1) < 0.04);
}

BOOST_DATA_TEST_CASE(a_pair_differs_by_the_loop_and_by_what_pays_for_it,
                     boost::unit_test::data::make(kBaselines), name) {
  const BenchCase &b = find_case(name), &s = find_case(std::string(name) + "-smelt");
  BOOST_TEST(s.batch == b.batch);
  BOOST_TEST(s.seq_len == b.seq_len);
  BOOST_TEST(s.model.vocab_size == b.model.vocab_size);
  BOOST_TEST(s.model.num_layers == b.model.num_layers);
  BOOST_TEST(s.model.top_k == b.model.top_k);
  BOOST_TEST(s.model.num_experts * 2 == b.model.num_experts * 3);
  const ExecutionPlan plan(s.model.num_layers, s.model.loop);
  BOOST_TEST(plan.span_end() - plan.span_begin() == s.model.num_layers / 2);
  BOOST_TEST(plan.visits() == 2);
  BOOST_TEST(budget_of(b).executed_depth == b.model.num_layers);
}

BOOST_AUTO_TEST_CASE(b_is_the_fully_active_model_of_the_100m_scale) {
  const Budget b = budget_of(find_case("B"));
  BOOST_TEST(b.params_active == b.params_non_embedding);
  BOOST_TEST(std::abs(double(b.params_active) / 100e6 - 1) < 0.01);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
