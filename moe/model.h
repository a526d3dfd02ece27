// The MoE transformer: embedding, the layers in the order of the ExecutionPlan, final norm, head.
//
// One executed step of layer l at visit v, with the plan's residual scale s:
//   x <- x + s * attention(norm1(x));   x <- x + s * moe(norm2(x)).
// Without a loop this is, tensor for tensor, a Hugging Face Qwen3-MoE model (QkNorm::head), an
// OLMoE (QkNorm::projection) or a Mixtral (QkNorm::none).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dist/group.h"
#include "moe/balance.h"
#include "moe/config.h"
#include "moe/experts.h"
#include "moe/router.h"
#include "nn/attention.h"

namespace smelt {

/// B sequences of S tokens; T = B * S.
struct ModelInput {
  Tensor tokens;   // [T] i32
  Tensor targets;  // [T] i32, -1 = none; undefined where only hidden states are wanted
  SequenceLayout layout;
};

/// Of one pass on one rank, each [1] f64; aux and z are normalised as in balance.h.
struct PassLoss {
  Variable cross_entropy;  // sum over target tokens, nats
  Variable aux, z;
};

class MoeTransformer {
 public:
  /// Builds and checks; call parameters().initialize(seed) or load a checkpoint next. Each rank of
  /// `world`'s expert-parallel group holds num_experts / size of them.
  /// @throws ConfigError naming the key, its value and what is allowed.
  MoeTransformer(const ModelConfig& config, DType dtype, const dist::World& world,
                 Device device = {});
  ~MoeTransformer();
  MoeTransformer(const MoeTransformer&) = delete;
  MoeTransformer& operator=(const MoeTransformer&) = delete;

  const ModelConfig& config() const { return config_; }
  const ExecutionPlan& plan() const { return plan_; }
  ParameterStore& parameters() { return store_; }
  DType dtype() const { return store_.dtype(); }

  /// Hidden states after the final norm, [T, H]. With a cache, the input continues each of its
  /// sequences, is stored in it, and the caller advances it.
  /// @param sums  if given, collects the routing of every step
  Variable hidden(const ModelInput& input, KvCache* cache = nullptr, RouterSums* sums = nullptr);
  /// Training pass: records the graph. `totals` are those of the whole step. Collective.
  PassLoss loss(const ModelInput& input, const BalanceConfig& balance, const StepTotals& totals);
  /// Cross-entropy of every position [T] f32, 0 where there is no target; no graph. Collective.
  Tensor token_losses(const ModelInput& input, RouterSums* sums = nullptr);
  /// [N, V] f32 (f64) logits of hidden states [N, H].
  Variable logits(const Variable& hidden) const;
  /// The output matrix [V, H]: the head, or the embedding when tied.
  const Variable& head_weight() const { return head_ ? head_->weight() : embedding_.weight(); }

  void set_recompute(Recompute recompute) { recompute_ = recompute; }
  /// Selection bias [E] of a plan step; undefined unless enabled.
  const Tensor& expert_bias(int64_t step) const { return biases_[size_t(step)]; }
  /// Gives every plan step a selection bias of zeros.
  void enable_expert_bias();
  /// Load of each plan step since the last clear().
  LoadStatistics& load() { return load_; }

 private:
  struct Layer;
  struct Pass;
  /// One plan step on {x, [k, v]} -> {x, aux, z, [k, v]}.
  std::vector<Variable> run_step(size_t step, const std::vector<Variable>& inputs,
                                 const Pass& pass);
  /// {hidden after the final norm, aux, z}.
  std::vector<Variable> run(const ModelInput& input, const Pass& pass);
  /// Experts of one step on x [T, H].
  Variable feed_forward(size_t step, const Variable& x, const Routing& routing);
  bool kv_read_later(size_t step) const;

  ModelConfig config_;
  ExecutionPlan plan_;
  dist::World world_;
  ParameterStore store_;
  Embedding embedding_;
  std::vector<std::unique_ptr<Layer>> layers_;
  RmsNormModule norm_;
  std::unique_ptr<Linear> head_;  // absent when tied
  RotaryTable rotary_;
  Recompute recompute_ = Recompute::none;
  std::vector<Tensor> biases_;
  LoadStatistics load_;
  std::vector<std::string> step_names_;  // "layer 3 visit 1", for profiles
};

}  // namespace smelt
