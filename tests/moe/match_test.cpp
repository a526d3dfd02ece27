// The matcher against exhaustive search, and what it must find for the published recipe.
#include "moe/match.h"

#include <cmath>
#include <tuple>

#include <boost/test/unit_test.hpp>

#include "tensor/error.h"
#include "tests/moe/published.h"

using namespace smelt;

namespace {

ModelConfig baseline_model() {
  ModelConfig c;
  c.hidden_size = 96;
  c.num_layers = 4;
  c.num_heads = 6;
  c.num_kv_heads = 3;
  c.head_dim = 24;
  c.num_experts = 16;
  c.top_k = 4;
  c.expert_hidden_size = 40;
  c.vocab_size = 257;
  return c;
}

constexpr double kContext = 100;

double cost_of(const ModelConfig& c, const ModelConfig& baseline, const MatchOptions& options) {
  const BudgetTriple r = budget_ratios(budget_of(c, kContext), budget_of(baseline, kContext));
  double cost = 0;
  for (const auto& [ratio, target, tolerance] :
       {std::tuple(r.flops, options.target.flops, options.tolerance.flops),
        std::tuple(r.params, options.target.params, options.tolerance.params),
        std::tuple(r.kv, options.target.kv, options.tolerance.kv)}) {
    if (target == 0) continue;
    if (ratio < target * (1 - tolerance) || ratio > target * (1 + tolerance)) return INFINITY;
    cost += std::pow((ratio / target - 1) / tolerance, 2);
  }
  const double depth = double(ExecutionPlan(c.num_layers, c.loop).executed_depth());
  cost += 4 * std::pow(std::log(double(c.expert_hidden_size * baseline.hidden_size) /
                                double(c.hidden_size * baseline.expert_hidden_size)),
                       2);
  cost += 16 * std::pow(std::log(double(c.num_kv_heads) / double(baseline.num_kv_heads)), 2);
  cost += 4 * std::pow(std::log(double(c.num_experts * baseline.num_layers) /
                                (double(baseline.num_experts) * depth)),
                       2);
  return cost;
}

/// Costs of the best points of the grids, every single one looked at.
std::vector<double> brute_force(const ModelConfig& baseline, const MatchOptions& options) {
  std::vector<double> costs;
  const auto each = [&](const char* name, const auto& visit) {
    const SizeGrid& g = options.grids.at(name);
    for (int64_t x = 1; x <= g.high; ++x)
      if (x >= g.low && x % g.multiple == 0) visit(x);
  };
  ModelConfig c = baseline;
  c.num_layers = options.num_layers;
  c.loop = options.loop;
  for (const int64_t heads : options.kv_heads) {
    c.num_kv_heads = heads;
    each("hidden_size", [&](int64_t hidden) {
      c.hidden_size = hidden;
      each("head_dim", [&](int64_t dim) {
        c.head_dim = dim;
        each("num_experts", [&](int64_t experts) {
          c.num_experts = experts;
          each("expert_hidden_size", [&](int64_t width) {
            c.expert_hidden_size = width;
            const double cost = cost_of(c, baseline, options);
            if (std::isfinite(cost) && c.top_k <= c.num_experts) costs.push_back(cost);
          });
        });
      });
    });
  }
  std::sort(costs.begin(), costs.end());
  return costs;
}

void check_against_brute_force(const ModelConfig& baseline, MatchOptions options) {
  options.count = 7;
  const std::vector<double> expected = brute_force(baseline, options);
  if (expected.empty()) {
    BOOST_CHECK_THROW(match_budgets(baseline, kContext, options), ConfigError);
    return;
  }
  const std::vector<Match> found = match_budgets(baseline, kContext, options);
  BOOST_REQUIRE_EQUAL(found.size(), std::min<size_t>(7, expected.size()));
  for (size_t i = 0; i < found.size(); ++i) {
    BOOST_TEST(std::abs(found[i].cost - expected[i]) < 1e-9);
    BOOST_TEST(std::abs(found[i].cost - cost_of(found[i].config, baseline, options)) < 1e-9);
  }
}

bool within(const BudgetTriple& ratio, double scale = 1) {
  return std::abs(ratio.flops - 1) <= 0.04 * scale && std::abs(ratio.params - 1) <= 0.01 * scale &&
         std::abs(ratio.kv - 1) <= 0.04 * scale;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(match)

BOOST_AUTO_TEST_CASE(finds_what_exhaustive_search_finds) {
  const ModelConfig baseline = baseline_model();
  MatchOptions options = default_match(baseline);
  options.loop = span_of(4, 0.5, 2);
  check_against_brute_force(baseline, options);

  options.loop.kv = LoopKv::first;
  check_against_brute_force(baseline, options);

  options.loop = span_of(4, 0.25, 3);
  options.target = {1.2, 1.5, 0};
  check_against_brute_force(baseline, options);

  options.target = {0, 1, 1};
  options.grids["num_experts"] = {4, 40, 2};
  check_against_brute_force(baseline, options);

  options = default_match(
      baseline, {.hidden_size = 16, .expert_hidden_size = 16, .num_experts = 16, .head_dim = 16});
  options.loop = span_of(4, 1, 4);
  check_against_brute_force(baseline, options);
}

BOOST_AUTO_TEST_CASE(an_unlooped_match_is_the_baseline_itself) {
  const ModelConfig baseline = baseline_model();
  const Match best = match_budgets(baseline, kContext, default_match(baseline)).front();
  BOOST_TEST(best.cost == 0);
  BOOST_TEST(best.config.hidden_size == 96);
  BOOST_TEST(best.config.expert_hidden_size == 40);
  BOOST_TEST(best.config.num_experts == 16);
  BOOST_TEST(best.config.head_dim == 24);
  BOOST_TEST(best.config.num_kv_heads == 3);
}

BOOST_AUTO_TEST_CASE(every_span_of_the_ablation_has_a_match) {
  for (int64_t layers = 0; layers <= 12; layers += 2) {
    MatchOptions options = default_match(published_200m());
    options.loop = span_of(12, double(layers) / 12, 2);
    const Match best = match_budgets(published_200m(), 336, options).front();
    BOOST_TEST_CONTEXT(layers << " layers looped") {
      BOOST_TEST(within(best.ratio));
      BOOST_TEST(best.budget.executed_depth == 12 + layers);
      BOOST_TEST(best.config.loop.layers == layers);
    }
  }
}

BOOST_AUTO_TEST_CASE(visits_and_depths_of_the_ablations_have_matches) {
  for (int64_t visits = 1; visits <= 4; ++visits) {
    MatchOptions options = default_match(published_200m());
    options.loop = span_of(12, 0.5, visits);
    const Match best = match_budgets(published_200m(), 336, options).front();
    BOOST_TEST(within(best.ratio));
    BOOST_TEST(best.budget.executed_depth == 12 + (visits - 1) * 6);
  }
  for (const int64_t depth : {9, 12, 15, 18}) {
    for (const int64_t visits : {1, 2}) {
      MatchOptions options = default_match(published_200m());
      options.num_layers = depth;
      options.loop = span_of(depth, 0.5, visits);
      const Match best = match_budgets(published_200m(), 336, options).front();
      BOOST_TEST_CONTEXT(depth << " layers, " << visits << " visits") {
        BOOST_TEST(within(best.ratio));
        BOOST_TEST(best.config.num_layers == depth);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_control_can_add_only_experts_or_only_parameters) {
  MatchOptions options = default_match(published_200m());
  options.target = {0, 1.5, 1};
  for (const auto& [name, value] :
       {std::pair{"hidden_size", 1280}, {"expert_hidden_size", 432}, {"head_dim", 80}})
    options.grids[name] = {value, value, 1};
  options.kv_heads = {4};
  const Match experts = match_budgets(published_200m(), 336, options).front();
  BOOST_TEST(experts.config.num_experts > 280);
  BOOST_TEST(std::abs(experts.ratio.params - 1.5) < 0.015);
  BOOST_TEST(experts.config.hidden_size == 1280);

  options = default_match(published_200m());
  options.target = {0, 1.5, 1};
  options.grids["num_experts"] = {192, 192, 1};
  const Match wider = match_budgets(published_200m(), 336, options).front();
  BOOST_TEST(wider.config.num_experts == 192);
  BOOST_TEST(wider.config.hidden_size > 1280);
  BOOST_TEST(std::abs(wider.ratio.params - 1.5) < 0.015);
}

BOOST_AUTO_TEST_CASE(a_span_is_centred_and_rounded) {
  BOOST_TEST(span_of(10, 0.5, 2).layers == 5);
  BOOST_TEST(span_of(15, 0.5, 2).layers == 8);
  BOOST_TEST(span_of(12, 1.0 / 6, 2).layers == 2);
  BOOST_TEST(span_of(12, 0, 2).layers == 0);
  BOOST_TEST(span_of(12, 0, 2).visits == 1);
  BOOST_TEST(span_of(12, 0.5, 1).layers == 0);
  // The published spans, counted from 1: 3-7, 4-9, 6-15, 8-22.
  for (const auto& [layers, begin, end] :
       {std::tuple{10, 3, 7}, std::tuple{12, 4, 9}, std::tuple{20, 6, 15}, std::tuple{30, 8, 22}}) {
    const ExecutionPlan plan(layers, span_of(layers, 0.5, 2));
    BOOST_TEST(plan.span_begin() + 1 == begin);
    BOOST_TEST(plan.span_end() == end);
  }
  BOOST_CHECK_THROW(span_of(12, 1.1, 2), ConfigError);
  BOOST_CHECK_THROW(span_of(12, -0.1, 2), ConfigError);
  BOOST_CHECK_THROW(span_of(12, 0.5, 0), ConfigError);
}

BOOST_AUTO_TEST_CASE(without_a_match_the_nearest_is_told) {
  MatchOptions options = default_match(baseline_model());
  options.loop = span_of(4, 0.5, 2);
  for (const auto& [name, value] : {std::pair{"hidden_size", 96}, {"expert_hidden_size", 40}})
    options.grids[name] = {value, value, 1};
  options.kv_heads = {3};
  options.grids["head_dim"] = {24, 24, 1};
  BOOST_CHECK_EXCEPTION(match_budgets(baseline_model(), kContext, options), ConfigError,
                        [](const ConfigError& error) {
                          const std::string text = error.what();
                          return text.find("no model on the grid is within 4 % of the wanted F") !=
                                     std::string::npos &&
                                 text.find("the nearest found has F x 1.5") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(refuses_bad_searches_by_name) {
  const auto refused = [](const auto& change, const std::string& part) {
    MatchOptions options = default_match(baseline_model());
    change(options);
    BOOST_CHECK_EXCEPTION(match_budgets(baseline_model(), kContext, options), ConfigError,
                          [&](const ConfigError& error) {
                            return std::string(error.what()).find(part) != std::string::npos;
                          });
  };
  refused([](MatchOptions& o) { o.grids.erase("head_dim"); }, "no grid for head_dim");
  refused(
      [](MatchOptions& o) {
        o.grids["head_dim"] = {5, 7, 8};
      },
      "head_dim has no multiple of 8 from 5 to 7");
  refused([](MatchOptions& o) { o.kv_heads = {4}; }, "num_kv_heads = 4 does not divide");
  refused([](MatchOptions& o) { o.kv_heads = {}; }, "no number of kv heads");
  refused([](MatchOptions& o) { o.tolerance.kv = 0; }, "tolerance of 0");
  refused([](MatchOptions& o) { o.target.flops = -1; }, "target ratio of -1");
  refused([](MatchOptions& o) { o.count = 0; }, "at least one result");
}

BOOST_AUTO_TEST_SUITE_END()
