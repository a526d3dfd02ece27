// config.json of a checkpoint folder: the Hugging Face form of a model's sizes, with the loop.
#pragma once

#include <string>

#include "moe/config.h"

namespace smelt {

/// Whether the model is, tensor for tensor, a Qwen3-MoE model: no loop that changes anything, QK
/// norm, no shared expert.
bool is_qwen3_moe(const ModelConfig& config);

/// config.json text. model_type is "qwen3_moe" where is_qwen3_moe() holds, else "smelt" with the
/// loop in an object of its own. eod_id becomes eos_token_id.
/// @param selection_bias  the model has biases that choose its experts, which Qwen3-MoE has not
std::string write_model_json(const ModelConfig& config, int32_t eod_id,
                             bool selection_bias = false);

struct ModelJson {
  ModelConfig config;
  int32_t eod_id = -1;  // -1: none given
};
/// Reads config.json of a folder. A "smelt" model must have all loop keys: a missing one is an
/// error, never a default.
/// @throws IoError naming the file, the key, its value and what is allowed.
ModelJson read_model_json(const std::string& folder);

}  // namespace smelt
