// Writing tokenizer.json, keys in the order of the tokenizers library. Merges are spelled as pairs:
// a string "#version x" would be skipped as a comment by readers.
#include <algorithm>
#include <string>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "apps/common/tokenizer/byte_level.h"
#include "apps/common/tokenizer/trainer.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace json = boost::json;

// What Qwen2 and Llama 3 differ in is how many digits are a piece.
constexpr char kBeforeDigits[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
constexpr char kAfterDigits[] = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string quoted(std::string_view text) {
  return json::serialize(json::value(json::string(text.data(), text.size())));
}
std::string spelled(std::string_view bytes) { return quoted(byte_level_spelling(bytes)); }

json::object byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", use_regex},
          {"use_regex", use_regex}};
}

json::value pre_tokenizer(TokenizerStyle style) {
  if (style == TokenizerStyle::gpt2) return byte_level(true);
  const std::string pattern = std::string(kBeforeDigits) +
                              (style == TokenizerStyle::llama3 ? "\\p{N}{1,3}" : "\\p{N}") +
                              kAfterDigits;
  const json::object split{{"type", "Split"},
                           {"pattern", json::object{{"Regex", pattern}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  return json::object{{"type", "Sequence"},
                      {"pretokenizers", json::array{split, byte_level(false)}}};
}

json::value post_processor(TokenizerStyle style, const std::vector<std::string>& special_tokens,
                           int64_t first_id) {
  const json::object bytes = byte_level(style == TokenizerStyle::gpt2);
  const std::string begin = "<|begin_of_text|>";
  const auto at = std::find(special_tokens.begin(), special_tokens.end(), begin);
  if (at == special_tokens.end()) return bytes;
  const json::object token{{"SpecialToken", json::object{{"id", begin}, {"type_id", 0}}}};
  const auto sequence = [](const char* id, int type) {
    return json::object{{"Sequence", json::object{{"id", id}, {"type_id", type}}}};
  };
  json::object second = token;
  second["SpecialToken"].as_object()["type_id"] = 1;
  const json::object names{
      {begin, json::object{{"id", begin},
                           {"ids", json::array{first_id + (at - special_tokens.begin())}},
                           {"tokens", json::array{begin}}}}};
  const json::object added{{"type", "TemplateProcessing"},
                           {"single", json::array{token, sequence("A", 0)}},
                           {"pair", json::array{token, sequence("A", 0), second, sequence("B", 1)}},
                           {"special_tokens", names}};
  return json::object{{"type", "Sequence"}, {"processors", json::array{bytes, added}}};
}

}  // namespace

std::string tokenizer_json(TokenizerStyle style, const std::vector<std::string>& tokens,
                           const std::vector<TrainedMerge>& merges,
                           const std::vector<std::string>& special_tokens) {
  const auto first_special = static_cast<int64_t>(tokens.size());
  json::array added;
  for (size_t i = 0; i < special_tokens.size(); ++i)
    added.push_back({{"id", first_special + static_cast<int64_t>(i)},
                     {"content", special_tokens[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const bool nfc = style == TokenizerStyle::qwen;
  const json::value normalizer = nfc ? json::value{{"type", "NFC"}} : json::value(nullptr);
  std::string text = "{\n\"version\":\"1.0\",\n\"truncation\":null,\n\"padding\":null,\n";
  const auto put = [&](const char* key, const json::value& value) {
    text += quoted(key) + ":" + json::serialize(value) + ",\n";
  };
  put("added_tokens", added);
  put("normalizer", normalizer);
  put("pre_tokenizer", pre_tokenizer(style));
  put("post_processor", post_processor(style, special_tokens, first_special));
  put("decoder", byte_level(style == TokenizerStyle::gpt2));
  // Llama 3's file comes from a vocabulary in which a piece that is a token is that token.
  text +=
      "\"model\":{\n\"type\":\"BPE\",\n\"dropout\":null,\n\"unk_token\":null,\n"
      "\"continuing_subword_prefix\":null,\n\"end_of_word_suffix\":null,\n"
      "\"fuse_unk\":false,\n\"byte_fallback\":false,\n\"ignore_merges\":";
  text += style == TokenizerStyle::llama3 ? "true" : "false";
  text += ",\n\"vocab\":{";
  for (size_t id = 0; id < tokens.size(); ++id)
    text += (id == 0 ? "\n" : ",\n") + spelled(tokens[id]) + ":" + std::to_string(id);
  text += "},\n\"merges\":[";
  for (size_t i = 0; i < merges.size(); ++i)
    text += (i == 0 ? "\n[" : ",\n[") + spelled(tokens[static_cast<size_t>(merges[i].left)]) + "," +
            spelled(tokens[static_cast<size_t>(merges[i].right)]) + "]";
  return text + "]\n}\n}\n";
}

}  // namespace smelt
