// Finds the sizes of a model whose budgets are those of a Baseline: the SMELT recipe (a looped,
// narrower model with more experts), its ablations, and controls that add only parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "moe/budget.h"

namespace smelt {

/// One number for each of the three budgets.
struct BudgetTriple {
  double flops = 0, params = 0, kv = 0;
  bool operator==(const BudgetTriple&) const = default;
};

/// F, N and cached values of a model as multiples of those of a reference.
BudgetTriple budget_ratios(const Budget& budget, const Budget& reference);

/// Values that a size may take: multiples of `multiple` in [low, high]; one value when low = high.
struct SizeGrid {
  int64_t low = 1, high = 1, multiple = 1;
  bool operator==(const SizeGrid&) const = default;
};

struct MatchOptions {
  int64_t num_layers = 0;  // physical layers of the wanted model
  LoopConfig loop;         // its loop
  /// hidden_size, expert_hidden_size, num_experts, head_dim; see default_grids.
  std::map<std::string, SizeGrid> grids;
  std::vector<int64_t> kv_heads;  // values of num_kv_heads that divide num_heads
  /// Wanted ratios to the Baseline; 0 leaves a budget free.
  BudgetTriple target{1, 1, 1};
  /// Allowed deviations from the target, e.g. 0.04 for 4 %.
  BudgetTriple tolerance{0.04, 0.01, 0.04};
  size_t count = 5;  // how many of the best to return
};

/// Hardware-friendly multiples of the sizes that are searched.
struct MatchMultiples {
  int64_t hidden_size = 8, expert_hidden_size = 8;
  int64_t num_experts = 0;  // 0: 8, or 1 where the Baseline has fewer than 16
  int64_t head_dim = 2;
};

/// Grids from one multiple up to twice the Baseline's value (num_experts: from top_k to four
/// times), and every number of key and value heads that divides num_heads.
MatchOptions default_match(const ModelConfig& baseline, const MatchMultiples& multiples = {});

/// The centred span that takes a fraction of the layers, rounded to the nearest number (a half up).
/// @throws ConfigError unless 0 <= fraction <= 1 and visits >= 1
LoopConfig span_of(int64_t num_layers, double fraction, int64_t visits);

struct Match {
  ModelConfig config;
  Budget budget;
  BudgetTriple ratio;  // to the Baseline
  double cost = 0;
};

/// The models with the least
///   cost = sum over the targeted budgets of ((ratio / target - 1) / tolerance)^2
///        + 4 (ln^2(aspect / Baseline's) + 4 ln^2(num_kv_heads / Baseline's)
///             + ln^2(num_experts / (Baseline's * executed depth / Baseline's))),
/// aspect = expert_hidden_size / hidden_size, among all points of the grids inside the tolerances,
/// best first; equal costs in the order of the sizes. Many models reach the same budgets: the last
/// terms choose the one of the recipe's shape (experts grow by the executed depth, 1.5 times in
/// the published models), where a change by e^(1/2) weighs as much as a budget at its tolerance.
/// Key and value heads weigh more: with the cache matched they set the width of the queries, and
/// with another share of attention F would match at this mean context only. Takes all else from the
/// Baseline. The result does not depend on threads or time.
/// @throws ConfigError when no point is inside the tolerances (it then tells the nearest found) or
/// a grid is empty
std::vector<Match> match_budgets(const ModelConfig& baseline, double mean_context,
                                 const MatchOptions& options);

}  // namespace smelt
