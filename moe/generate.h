// Text generation with the KV cache.
#pragma once

#include <functional>
#include <vector>

#include "moe/model.h"
#include "nn/sampling.h"

namespace smelt {

struct GenerateConfig {
  int64_t max_new_tokens = 64;
  int32_t stop_id = -1;  // ends a sequence; not part of the result. -1: none
  SamplingConfig sampling;
};

/// Continues each prompt; prompts may differ in length. Returns the new ids only.
/// Collective over an expert-parallel group: all its ranks pass the same prompts.
/// @param on_token  called with (prompt index, id) as tokens come; may be empty
/// @throws ConfigError for an empty prompt, an id outside the vocabulary, or a prompt whose
///         continuation would pass max_seq_len.
std::vector<std::vector<int32_t>> generate(
    MoeTransformer& model, const std::vector<std::vector<int32_t>>& prompts,
    const GenerateConfig& config, const std::function<void(size_t, int32_t)>& on_token = {});

}  // namespace smelt
