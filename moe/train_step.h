// One optimizer step over the micro-batches of all ranks.
#pragma once

#include <vector>

#include "moe/model.h"
#include "moe/sharded_optimizer.h"

namespace smelt {

struct TrainStepConfig {
  double lr = 0;
  double grad_clip = 1;  // global norm; 0: off
  BalanceConfig balance;
};

/// Means over the whole step and all ranks; the same on every rank.
struct StepMetrics {
  double loss = 0;      // nats per target token
  double aux_loss = 0;  // 1.0 = balanced
  double z_loss = 0;
  double grad_norm = 0;  // before clipping
  double targets = 0;    // target tokens
  bool skipped = false;  // nothing was updated: no target anywhere, or loss or gradient not finite
};

/// Forward and backward of every micro-batch, one reduction, clipping and update. The loss is the
/// mean over all target tokens of all ranks and micro-batches, plus aux_loss_coef * aux (balance =
/// aux) and z_loss_coef * z. Every rank passes the same number of micro-batches; each may be empty
/// or without targets. A step without targets or with a non-finite loss or gradient changes
/// nothing, on any rank. model.load() holds the loads of the step afterwards. Collective.
StepMetrics train_step(MoeTransformer& model, ShardedOptimizer& optimizer, const dist::World& world,
                       const std::vector<ModelInput>& micro_batches, const TrainStepConfig& config);

/// Targets that are not -1.
int64_t count_targets(const Tensor& targets);

}  // namespace smelt
