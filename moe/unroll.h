// A looped model written out as a plain one: every executed step becomes a layer of its own.
//
// Step i of the plan computes x + s f(x) with the weights of layer steps[i].layer. Both sub-layers
// end in a linear map (o_proj, the experts' down_proj), so s can be multiplied into its weight and
// the result is an unlooped model that any Qwen3-MoE reader opens.
#pragma once

#include <string>

#include "moe/model.h"

namespace smelt {

/// Configuration of the plain model: executed_depth layers and no loop.
/// @throws ConfigError for loop.kv = first when a visit reads earlier keys and values: a plain
/// layer has no way to do that.
ModelConfig unrolled_config(const ModelConfig& config);

/// The looped model's tensor of which a tensor of the plain model is a copy, and the factor on it.
struct UnrolledSource {
  std::string name;
  double factor = 1;
};
UnrolledSource unrolled_source(const std::string& name, const ExecutionPlan& looped);

/// Writes into `plain`, built from unrolled_config(looped.config()) with the same dtype and expert
/// parallelism, the weights of `looped`: layer i has those of layer steps[i].layer, with the
/// residual scale folded into o_proj and every down_proj; selection biases too. Each rank copies
/// the experts it holds. Copies the values that the model computes with (rounded ones in bf16).
/// @throws ConfigError when `plain` is not such a model.
void copy_unrolled(MoeTransformer& looped, MoeTransformer& plain);

}  // namespace smelt
