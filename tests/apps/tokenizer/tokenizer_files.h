// A small tokenizer.json, to be changed piece by piece.
#pragma once

#include <string>

#include <boost/json.hpp>

#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "apps/common/tokenizer/trainer.h"

namespace smelt::testing {

/// The bytes, merges of "a b", "ab c" and "c d" (ids 256 to 258), <|endoftext|> (259).
inline boost::json::object small_file(TokenizerStyle style = TokenizerStyle::gpt2) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {"ab", "abc", "cd"});
  return boost::json::parse(tokenizer_json(style, tokens,
                                           {{'a', 'b', 256}, {256, 'c', 257}, {'c', 'd', 258}},
                                           {"<|endoftext|>"}))
      .as_object();
}

/// added_tokens[i] of the library's form.
inline boost::json::object added_token(int64_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

inline BpeTokenizer tokenizer_of(const boost::json::object& file, const SpecialNames& names = {},
                                 const std::string& eod = "") {
  return BpeTokenizer(boost::json::serialize(file), "t.json", names, eod);
}

using Ids = std::vector<int32_t>;

}  // namespace smelt::testing
