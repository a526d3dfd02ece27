#include "apps/common/tokenizer/special_names.h"

#include <boost/json/serialize.hpp>

#include "apps/common/tokenizer/json_fields.h"

namespace smelt {
namespace {

namespace json = boost::json;

constexpr size_t kParsedBytes = size_t{64} << 20;

}  // namespace

void read_tokenizer_config(const std::string& text, const std::string& where, SpecialNames& names) {
  const BoundedJson parsed(text, where, kParsedBytes);
  const JsonFields file = parsed.root();
  const auto read = [&](std::string_view key, std::string& name) {
    const json::value* value = file.find(key);
    if (value == nullptr) return;
    name = value->is_object() ? file.required_object(key).required_text("content") : file.text(key);
  };
  read("eos_token", names.eos);
  read("bos_token", names.bos);
  read("pad_token", names.pad);
  read("unk_token", names.unk);
}

void read_model_config(const std::string& text, const std::string& where, SpecialNames& names) {
  const BoundedJson parsed(text, where, kParsedBytes);
  const JsonFields file = parsed.root();
  constexpr std::string_view kKey = "eos_token_id";
  const json::value* value = file.find(kKey);
  if (value == nullptr) return;
  const bool list = value->is_array() && !value->as_array().empty();
  const json::value& first = list ? value->as_array().front() : *value;
  if (!first.is_int64()) file.refuse(kKey, &first, "an integer or a list of integers");
  names.eos_id = first.as_int64();
}

std::string tokenizer_config_text(const SpecialNames& names) {
  json::object config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"clean_up_tokenization_spaces", false}};
  const auto put = [&](const char* key, const std::string& name) {
    config[key] = name.empty() ? json::value(nullptr) : json::value(name);
  };
  put("bos_token", names.bos);
  put("eos_token", names.eos);
  put("pad_token", names.pad);
  put("unk_token", names.unk);
  return json::serialize(config) + '\n';
}

}  // namespace smelt
