// Names of special tokens: what files beside tokenizer.json say, and what tokenizer_config.json is
// to say.
#pragma once

#include <cstdint>
#include <string>

namespace smelt {

/// Empty, or -1: not given.
struct SpecialNames {
  std::string eos, bos, pad, unk;
  int64_t eos_id = -1;
};

/// Adds what the text of a tokenizer_config.json says: eos_token, bos_token, pad_token, unk_token,
/// each a string, an object with "content", or null.
/// @throws IoError if it is not JSON, ConfigError for a value of a wrong type.
void read_tokenizer_config(const std::string& text, const std::string& where, SpecialNames& names);
/// Adds eos_token_id of the text of a model's config.json: an integer, a list of them of which the
/// first counts, or null.
void read_model_config(const std::string& text, const std::string& where, SpecialNames& names);

/// The text of tokenizer_config.json. The class keeps transformers from putting the parts of the
/// model type's own tokenizer in the place of those of tokenizer.json.
std::string tokenizer_config_text(const SpecialNames& names);

}  // namespace smelt
