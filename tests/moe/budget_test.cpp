// Budgets against numbers worked out by hand.
#include "moe/budget.h"

#include <cmath>

#include <boost/test/unit_test.hpp>

#include "tests/moe/published.h"

using namespace smelt;

namespace {

/// The small model of CASES 39: every projection 4 x 4, four experts of width 3, two of them
/// active.
ModelConfig small() {
  ModelConfig c;
  c.hidden_size = 4;
  c.num_layers = 4;
  c.num_heads = c.num_kv_heads = 1;
  c.head_dim = 4;
  c.num_experts = 4;
  c.top_k = 2;
  c.expert_hidden_size = 3;
  c.vocab_size = 10;
  c.qk_norm = QkNorm::none;
  c.loop = {.start = 1, .layers = 2, .visits = 2};
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(budget)

BOOST_AUTO_TEST_CASE(shared_layers_count_once_as_parameters_and_twice_as_work) {  // CASE 39
  const Budget b = budget_of(small(), 0);
  BOOST_CHECK_EQUAL(b.params_non_embedding, 932);
  BOOST_CHECK_EQUAL(b.params_total, 932 + 2 * 40);
  BOOST_CHECK_EQUAL(b.params_active, 4 * (64 + 72 + 16 + 8) + 4);
  BOOST_CHECK_EQUAL(b.flops_per_token + b.flops_head, 5712.0);
  BOOST_CHECK_EQUAL(b.flops_head, 240.0);
  BOOST_CHECK_EQUAL(b.executed_depth, 6);
  BOOST_CHECK_EQUAL(b.kv_values_per_token, 6 * 2 * 4);
}

BOOST_AUTO_TEST_CASE(attention_costs_four_products_of_the_context_per_step) {
  // q.k and p.v: 2 * 2 * 4 FLOPs per key, forward; three times that in training; six steps.
  BOOST_CHECK_EQUAL(budget_of(small(), 10).flops_per_token - budget_of(small(), 0).flops_per_token,
                    6 * 3 * 16 * 10.0);
}

BOOST_AUTO_TEST_CASE(visits_that_reuse_keys_and_values_store_and_project_none) {
  ModelConfig c = small();
  c.loop.kv = LoopKv::first;
  const Budget b = budget_of(c, 0);
  BOOST_CHECK_EQUAL(b.kv_values_per_token, 4 * 2 * 4);
  BOOST_CHECK_EQUAL(budget_of(small(), 0).flops_per_token - b.flops_per_token,
                    2 * 3 * 64.0);  // k, v twice
}

BOOST_AUTO_TEST_CASE(a_shared_expert_and_a_tied_head_are_counted) {
  ModelConfig c = small();
  c.shared_expert_hidden_size = 5;
  c.tie_embeddings = true;
  const Budget plain = budget_of(small(), 0), b = budget_of(c, 0);
  BOOST_CHECK_EQUAL(b.params_non_embedding - plain.params_non_embedding, 4 * 3 * 4 * 5);
  BOOST_CHECK_EQUAL(b.flops_per_token - plain.flops_per_token, 6 * 3 * 2 * 60.0);
  BOOST_CHECK_EQUAL(b.params_total - b.params_non_embedding, 40);
}

BOOST_AUTO_TEST_CASE(parts_add_up) {
  ModelConfig c = small();
  c.shared_expert_hidden_size = 5;
  c.qk_norm = QkNorm::head;
  const Budget b = budget_of(c, 10);
  BOOST_CHECK_EQUAL(b.params.attention, 4 * 64);
  BOOST_CHECK_EQUAL(b.params.router, 4 * 16);
  BOOST_CHECK_EQUAL(b.params.experts, 4 * 4 * 36);
  BOOST_CHECK_EQUAL(b.params.shared_experts, 4 * 60);
  BOOST_CHECK_EQUAL(b.params.norms, 4 * (8 + 8) + 4);
  BOOST_CHECK_EQUAL(b.params_non_embedding, 256 + 64 + 576 + 240 + 68);
  BOOST_CHECK_EQUAL(b.params_total, b.params_non_embedding + 80);
  BOOST_CHECK_EQUAL(b.flops.projections, 6 * 6 * 64.0);
  BOOST_CHECK_EQUAL(b.flops.attention, 6 * 3 * 160.0);
  BOOST_CHECK_EQUAL(b.flops.router, 6 * 6 * 16.0);
  BOOST_CHECK_EQUAL(b.flops.experts, 6 * 6 * (72 + 60.0));
  BOOST_CHECK_EQUAL(b.flops_per_token, 2304 + 2880 + 576 + 4752.0);
}

BOOST_AUTO_TEST_CASE(gains_of_whole_projections_are_counted) {
  ModelConfig c = small();
  c.num_heads = 2;
  c.qk_norm = QkNorm::projection;
  BOOST_CHECK_EQUAL(budget_of(c, 0).params.norms, 4 * (8 + (8 + 4)) + 4);
}

ModelConfig published(int64_t H, int64_t L, int64_t heads, int64_t kv, int64_t D, int64_t E,
                      int64_t width, bool looped = false) {
  ModelConfig c = published_200m();
  c.hidden_size = H;
  c.num_layers = L;
  c.num_heads = heads;
  c.num_kv_heads = kv;
  c.head_dim = D;
  c.num_experts = E;
  c.expert_hidden_size = width;
  if (looped) c.loop = {.layers = L / 2, .visits = 2};
  return c;
}

BOOST_AUTO_TEST_CASE(published_parameters_and_flops_are_reproduced) {
  const auto params = [](const ModelConfig& c) {
    return double(budget_of(c, 0).params_non_embedding);
  };
  BOOST_CHECK_CLOSE(params(published_200m()), 3.87e9, 0.5);
  BOOST_CHECK_CLOSE(params(published(1792, 20, 28, 7, 64, 336, 600)), 21.83e9, 0.5);
  BOOST_CHECK_CLOSE(params(published(2304, 30, 36, 9, 64, 336, 768)), 53.89e9, 0.5);
  // F depends on the documents; a mean context of 336 keys gives the published figure.
  BOOST_CHECK_CLOSE(budget_of(published_200m(), 336).flops_per_token, 1.33e9, 0.05);
}

BOOST_AUTO_TEST_CASE(published_cache_ratios_are_reproduced) {
  const auto ratio = [](const ModelConfig& smelt, const ModelConfig& baseline) {
    return std::round(1000 * double(budget_of(smelt, 0).kv_values_per_token) /
                      double(budget_of(baseline, 0).kv_values_per_token)) /
           1000;
  };
  BOOST_TEST(ratio(published(576, 10, 12, 4, 36, 504, 424, true),
                   published(672, 10, 12, 4, 56, 336, 544)) == 0.964);
  BOOST_TEST(ratio(published(1056, 12, 16, 4, 55, 288, 352, true), published_200m()) == 1.031);
  BOOST_TEST(ratio(published(1512, 20, 28, 7, 42, 504, 472, true),
                   published(1792, 20, 28, 7, 64, 336, 600)) == 0.984);
  BOOST_TEST(ratio(published(1848, 30, 36, 9, 42, 504, 640, true),
                   published(2304, 30, 36, 9, 64, 336, 768)) == 0.984);
}

BOOST_AUTO_TEST_CASE(sparsity_is_measured_against_the_fully_active_control) {
  const ModelConfig baseline = published_200m();
  const Budget control = budget_of(control_of(baseline), 336);
  BOOST_TEST(sparsity(control, control) == 0);
  BOOST_TEST(std::abs(sparsity(budget_of(baseline, 336), control) - 0.9454) < 2e-4);
  // Half again the FLOPs at equal parameters: half again the equivalent parameters.
  Budget dearer = budget_of(baseline, 336);
  const double sparse = sparsity(dearer, control);
  dearer.flops_per_token *= 1.5;
  BOOST_CHECK_CLOSE(1 - sparsity(dearer, control), 1.5 * (1 - sparse), 1e-10);
  // A SMELT's own control is unlooped: S comes out as with the control of its Baseline.
  const ModelConfig smelt = published(1056, 12, 16, 4, 55, 288, 352, true);
  BOOST_TEST(control_of(smelt).num_experts == 8);
  BOOST_TEST(budget_of(control_of(smelt), 336).executed_depth == 12);
  BOOST_TEST(std::abs(sparsity(budget_of(smelt, 336), budget_of(control_of(smelt), 336)) -
                      sparsity(budget_of(smelt, 336), control)) < 2e-3);
}

BOOST_AUTO_TEST_CASE(a_loop_at_the_same_widths_costs_half_again) {
  ModelConfig naive = published_200m();
  naive.loop = {.layers = 6, .visits = 2};
  const Budget plain = budget_of(published_200m(), 336), looped = budget_of(naive, 336);
  BOOST_CHECK_CLOSE(looped.flops_per_token / plain.flops_per_token, 1.5, 1e-10);
  BOOST_CHECK_EQUAL(2 * looped.kv_values_per_token, 3 * plain.kv_values_per_token);
  BOOST_CHECK_EQUAL(looped.params_non_embedding, plain.params_non_embedding);
}

BOOST_AUTO_TEST_SUITE_END()
