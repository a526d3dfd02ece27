// Parameters, gradients and optimizer state in flat buffers, sharded as in ZeRO-1 (arXiv
// 1910.02054).
//
// Replicated parameters are shared by all ranks, experts by the ranks that hold the same ones: one
// partition each. Gradients are reduce-scattered in buckets while backward runs; each rank updates
// its part of every bucket and the parts are gathered again. Masters and moments are f32 (f64 in
// f64 models); a bf16 model computes with rounded copies made once per step.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dist/gradient_reducer.h"
#include "nn/optimizer.h"

namespace smelt {

/// Gradients are reduced in buckets of about this size; a larger parameter is a bucket of its own.
constexpr int64_t kBucketBytes = int64_t{32} << 20;

class ShardedOptimizer {
 public:
  /// Takes over the data and gradients of all parameters of `store`, as they are now. The store
  /// must outlive it. Collective.
  ShardedOptimizer(ParameterStore& store, const dist::World& world, const AdamWConfig& config,
                   bool overlap = true, int64_t bucket_bytes = kBucketBytes);
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// Zeroes all gradients for a new step.
  void zero_grad();
  /// From now on gradients that become complete are final: call before the last backward of a step.
  void begin_last_backward() { last_backward_ = true; }
  /// Completes the reduction and returns the norm of the whole gradient, each element counted once.
  /// The same on every rank; NaN or infinity if any element is. Collective.
  double reduce_gradients();
  /// AdamW on this rank's parts, then gathers the parameters. Collective.
  void step(double lr, double grad_scale);

  int64_t steps() const { return adamw_->steps(); }
  void set_steps(int64_t steps) { adamw_->set_steps(steps); }
  /// Bytes of moments on this rank.
  int64_t state_bytes() const { return adamw_->state_bytes(); }
  /// Times each parameter was reduced in the last step, in store order: 1 each.
  std::vector<int> reductions() const;

  /// The f32 (f64) values of a parameter of this rank. Valid until the optimizer goes.
  const Tensor& master(const Parameter& parameter) const;
  /// Writes new values into the masters and the compute copies: after loading a checkpoint.
  void refresh_from_masters();

  enum class Moment { first, second };
  class MomentGather;
  /// Calls fill(parameter, moment) for every parameter of this rank, which fills in the whole
  /// moment, and keeps this rank's part. Holds a bucket at a time. Local.
  void scatter_moments(Moment which,
                       const std::function<void(const Parameter&, const Tensor&)>& fill);

 private:
  struct Partition;
  const Tensor& moment(Moment which, size_t span) const;

  ParameterStore& store_;
  dist::World world_;
  std::vector<std::unique_ptr<Partition>> partitions_;
  std::unique_ptr<AdamW> adamw_;
  bool last_backward_ = false;
};

/// Whole moments of one kind, gathered from the ranks that share them a bucket at a time, so that a
/// checkpoint needs no memory of the model's size. Of each partition it keeps the last two buckets:
/// a file's order goes back and forth between the two parameters of a layer's experts.
class ShardedOptimizer::MomentGather {
 public:
  MomentGather(const ShardedOptimizer& optimizer, Moment which);
  ~MomentGather();
  /// The moment of a parameter of this rank, shaped like it. Collective over the ranks that share
  /// the parameter: all of them ask for the same ones in the same order.
  Tensor of(const Parameter& parameter);

 private:
  struct Kept;
  const ShardedOptimizer& optimizer_;
  Moment which_;
  std::unique_ptr<Kept> kept_;
};

}  // namespace smelt
