// Keeping experts evenly loaded: auxiliary losses, selection bias, and the statistics of both.
//
// Load-balancing loss (arXiv 2101.03961): E * sum_i f_i P_i with f_i the share of routed (token,
// slot) pairs on expert i and P_i its mean probability: 1.0 is perfect balance for any top_k; f
// carries no gradient. Router z-loss (arXiv 2202.08906): mean over tokens of logsumexp(logits)^2.
// Both are taken per (layer, visit), averaged over a layer's visits and then over layers.
#pragma once

#include <vector>

#include "dist/group.h"
#include "moe/config.h"
#include "moe/router.h"
#include "nn/execution_plan.h"

namespace smelt {

/// Totals of one optimizer step over all ranks and micro-batches, by which sums become means.
struct StepTotals {
  double targets = 0;    // target tokens
  double sequences = 0;  // sequences
  double tokens = 0;     // positions
  double passes = 1;     // micro-batches: forward passes of all ranks together
};

/// Balance and z-loss of one (layer, visit) within one pass, [1] f64 each, normalised so that the
/// sum over passes, ranks, visits and layers of a step is the mean that the definition above gives.
struct BalanceTerms {
  Variable aux, z;
};

/// @param batch   sequences in this pass on this rank (aux_scope = sequence: f and P within each)
/// @param counts  rows that this rank's tokens send to each expert (aux_scope = batch: f and P over
/// the
///                pass of all ranks of `world`; collective then)
/// @param share   1 / (visits of the layer * number of layers)
BalanceTerms balance_terms(const Routing& routing, const std::vector<int64_t>& counts,
                           int64_t batch, double share, const BalanceConfig& config,
                           const StepTotals& totals, const dist::Group& world);

/// The balancing loss as transformers computes it, to compare with its models: over the rows of all
/// layers and visits together, E * sum_e f_e P_e with f_e the mean number of a row's top_k choices
/// that are expert e and P_e its mean probability. Perfect balance gives top_k, not 1, and layers
/// out of balance in opposite ways cancel: for training see AuxScope.
class RouterSums {
 public:
  explicit RouterSums(int64_t num_experts)
      : choices_(size_t(num_experts), 0.0), probs_(size_t(num_experts), 0.0) {}
  void add(const Routing& routing);
  /// Sums over the ranks of `world`; collective.
  void reduce(const dist::Group& world);
  /// 0 when nothing was routed.
  double aux_loss() const;

 private:
  std::vector<double> choices_, probs_;  // [E] summed over rows
  double rows_ = 0;
};

/// Routed rows per expert for each step of the plan, summed over the micro-batches of a step. A
/// recomputed pass is not counted again.
class LoadStatistics {
 public:
  LoadStatistics(int64_t steps, int64_t num_experts);
  void add(int64_t step, const std::vector<int64_t>& tokens_per_expert);
  /// Sums over the ranks of `world`; collective.
  void reduce(const dist::Group& world);
  void clear();
  /// [E] rows of plan step `step`.
  const std::vector<double>& counts(int64_t step) const { return counts_[size_t(step)]; }
  int64_t steps() const { return int64_t(counts_.size()); }
  /// Largest load over mean load; 1.0 is perfect balance, 0 when nothing was routed.
  double max_over_mean(int64_t step) const;

 private:
  std::vector<std::vector<double>> counts_;
};

/// balance = bias (arXiv 2408.15664): bias += rate * sign(mean count - count), by the counts of the
/// whole step. bias [E] f32 in place.
void update_bias(const Tensor& bias, const std::vector<double>& counts, double rate);

}  // namespace smelt
