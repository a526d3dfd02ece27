// config.json of a model's folder: the Hugging Face form of a model's sizes, with the loop.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/json/value.hpp>

#include "apps/common/families.h"

namespace smelt {

struct ModelJson {
  ModelConfig config;
  Family family = Family::smelt;
  int32_t eod_id = -1;           // the first of eos_ids; -1: none given
  std::vector<int32_t> eos_ids;  // eos_token_id, one or several
};

/// config.json text. model_type is that of family_of(config, selection_bias); a "smelt" model has
/// the loop in an object of its own.
/// @param eos_ids  become eos_token_id: null, a number or a list
/// @param dtype    "float32", "bfloat16" or "float16": in what the files beside it are
std::string write_model_json(const ModelConfig& config, const std::vector<int32_t>& eos_ids,
                             bool selection_bias = false, const std::string& dtype = "float32");
/// The same with one end mark, or none for -1.
inline std::string write_model_json(const ModelConfig& config, int32_t eod_id,
                                    bool selection_bias = false) {
  return write_model_json(config, eod_id < 0 ? std::vector<int32_t>{} : std::vector{eod_id},
                          selection_bias);
}

/// Reads config.json of a folder: a Qwen3-MoE, OLMoE or Mixtral of transformers 4.x or 5.x, or a
/// "smelt" model, which must have all loop keys: a missing one is an error, never a default. What
/// would change the model and is not implemented (biases, dense layers, sliding windows, scaled
/// rotary positions) is refused.
/// @throws IoError naming the file, the key, its value and what is allowed.
ModelJson read_model_json(const std::string& folder);
/// The same from text; `name` stands for the file in messages.
ModelJson parse_model_json(std::string_view text, const std::string& name);

/// A JSON value with indentation by two, as these files are written, with a line end.
std::string print_json(const boost::json::value& value);

/// The text of generation_config.json: greedy, ending at any of these ids.
std::string generation_config_json(const std::vector<int32_t>& eos_ids);

}  // namespace smelt
