// The small JSON files beside tokenizer.json that tell other tools how to use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smelt {

/// tokenizer_config.json. Its class makes transformers take tokenizer.json as it stands: for the
/// model types that we write it would otherwise put normalizer and pre-tokenizer of its own in
/// place.
/// @param tokenizer_json  its text; names the end mark, whose id is eos_id (-1: none)
std::string tokenizer_config_json(const std::string& tokenizer_json, int32_t eos_id,
                                  int64_t max_seq_len);

/// generation_config.json: greedy, ending at any of these ids.
std::string generation_config_json(const std::vector<int32_t>& eos_ids);

}  // namespace smelt
