// The tensors of a model by name: ours, and what each family of Hugging Face models calls them in
// its files. Reading and writing both go through the table in families.cpp; nothing else knows it.
#pragma once

#include <functional>
#include <string>

#include "moe/config.h"
#include "tensor/tensor.h"

namespace smelt {

/// What config.json calls model_type. smelt: every model that is none of the others.
enum class Family { smelt, qwen3_moe, olmoe, mixtral };
const char* to_text(Family family);

/// The family that a model is, tensor for tensor.
/// @param selection_bias  the model has biases that choose its experts, which only smelt has
Family family_of(const ModelConfig& config, bool selection_bias = false);
/// What keeps a model from being any of the plain families, for messages; empty where nothing does.
std::string why_not_plain(const ModelConfig& config, bool selection_bias = false);

/// Calls visit with our name and the shape of every tensor of a model, all ranks' experts included,
/// selection biases [visits of the layer, E] only where asked for.
void for_each_tensor(const ModelConfig& config, bool selection_bias,
                     const std::function<void(const std::string&, const Shape&)>& visit);

/// What the files of a family call our tensor.
std::string family_name(Family family, const std::string& ours);

/// One of our tensors as a part of the fused form in which transformers 5.x holds all experts of a
/// layer: gate_up_proj [E, 2 F, H] (gate above up) or down_proj [E, H, F].
struct FusedPart {
  std::string name;   // "model.layers.0.mlp.experts.gate_up_proj"; empty: not an expert's tensor
  Shape shape;        // of the whole
  int64_t begin = 0;  // first element of the part in row-major order
};
/// @param shape  of our tensor
FusedPart fused_part(const std::string& ours, const Shape& shape, int64_t num_experts);

/// "model.layers.3.mlp.gate.expert_bias"
std::string expert_bias_name(int64_t layer);

}  // namespace smelt
