#include "moe/train_step.h"

#include <algorithm>
#include <cmath>

#include "autograd/elementwise.h"
#include "dist/collectives.h"
#include "tensor/profiler.h"

namespace smelt {

int64_t count_targets(const Tensor& targets) {
  const auto values = targets.to_vector<int32_t>();
  return std::count_if(values.begin(), values.end(), [](int32_t id) { return id >= 0; });
}

StepMetrics train_step(MoeTransformer& model, ShardedOptimizer& optimizer, const dist::World& world,
                       const std::vector<ModelInput>& micro_batches,
                       const TrainStepConfig& config) {
  const Tensor sums = Tensor::zeros({3}, {DType::f64, {}});
  double* local = sums.data<double>();
  for (const ModelInput& input : micro_batches) {
    local[0] += double(count_targets(input.targets));
    local[1] += double(input.layout.batch);
    local[2] += double(input.tokens.numel());
  }
  dist::all_reduce_sum_(sums, world.world());
  StepTotals totals{local[0], local[1], local[2], double(micro_batches.size())};

  StepMetrics metrics;
  metrics.targets = totals.targets;
  model.load().clear();
  if (totals.targets == 0) {
    metrics.skipped = true;
    return metrics;
  }

  optimizer.zero_grad();
  const Tensor losses = Tensor::zeros({3}, {DType::f64, {}});  // cross-entropy, aux, z of this rank
  double* loss_sums = losses.data<double>();
  const double aux_coef =
      config.balance.balance == Balance::aux ? config.balance.aux_loss_coef : 0.0;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const PassLoss pass = model.loss(micro_batches[i], config.balance, totals);
    Variable total = scale(pass.cross_entropy, 1.0 / totals.targets);
    if (aux_coef != 0) total = add_scaled(total, pass.aux, aux_coef);
    if (config.balance.z_loss_coef != 0)
      total = add_scaled(total, pass.z, config.balance.z_loss_coef);
    loss_sums[0] += pass.cross_entropy.item();
    loss_sums[1] += pass.aux.item();
    loss_sums[2] += pass.z.item();
    if (i + 1 == micro_batches.size()) optimizer.begin_last_backward();
    backward(total);
  }
  dist::all_reduce_sum_(losses, world.world());
  metrics.loss = loss_sums[0] / totals.targets;
  // With aux_scope = batch every rank has its own share of one global sum, as with sequences.
  metrics.aux_loss = loss_sums[1];
  metrics.z_loss = loss_sums[2];
  const ProfileScope scope("optimizer");
  metrics.grad_norm = optimizer.reduce_gradients();
  model.load().reduce(world.world());

  // Loss and norm are sums over all ranks, so every rank takes the same branch.
  metrics.skipped = !std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm);
  if (metrics.skipped) return metrics;
  optimizer.step(config.lr, clip_factor(metrics.grad_norm, config.grad_clip));
  if (config.balance.balance == Balance::bias) {
    for (int64_t step = 0; step < model.plan().executed_depth(); ++step) {
      update_bias(model.expert_bias(step), model.load().counts(step),
                  config.balance.bias_update_rate);
    }
  }
  return metrics;
}

}  // namespace smelt
