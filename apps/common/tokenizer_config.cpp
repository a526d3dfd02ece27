#include "apps/common/tokenizer_config.h"

#include <boost/json.hpp>

#include "apps/common/model_json.h"

namespace smelt {
namespace {

namespace json = boost::json;

/// The text of an added token, or null where tokenizer.json does not name that id.
json::value added_token(const std::string& tokenizer_json, int32_t id) {
  json::error_code error;
  const json::value tokenizer = json::parse(tokenizer_json, error);
  if (error || !tokenizer.is_object()) return nullptr;
  const json::value* added = tokenizer.as_object().if_contains("added_tokens");
  if (added == nullptr || !added->is_array()) return nullptr;
  for (const json::value& entry : added->as_array()) {
    if (!entry.is_object()) continue;
    const json::value* number = entry.as_object().if_contains("id");
    const json::value* content = entry.as_object().if_contains("content");
    if (number != nullptr && content != nullptr && *number == json::value(id)) return *content;
  }
  return nullptr;
}

}  // namespace

std::string tokenizer_config_json(const std::string& tokenizer_json, int32_t eos_id,
                                  int64_t max_seq_len) {
  return print_json(json::object{{"bos_token", nullptr},
                                 {"clean_up_tokenization_spaces", false},
                                 {"eos_token", added_token(tokenizer_json, eos_id)},
                                 {"model_max_length", max_seq_len},
                                 {"pad_token", nullptr},
                                 {"tokenizer_class", "PreTrainedTokenizerFast"},
                                 {"unk_token", nullptr}});
}

std::string generation_config_json(const std::vector<int32_t>& eos_ids) {
  json::object o{{"do_sample", false}};
  if (eos_ids.size() == 1) o["eos_token_id"] = eos_ids.front();
  if (eos_ids.size() > 1) o["eos_token_id"] = json::array(eos_ids.begin(), eos_ids.end());
  return print_json(o);
}

}  // namespace smelt
