#include "apps/common/tokenizer/added_tokens.h"

#include <algorithm>

#include "apps/common/tokenizer/utf8.h"

namespace smelt {

void AddedTokenFinder::add(const AddedToken& token, const std::string& spelling) {
  if (spelling.empty()) return;
  const auto number = static_cast<uint32_t>(tokens_.size());
  tokens_.push_back(
      {spelling, token.id, token.single_word, token.lstrip, token.rstrip, token.special});
  plain_ = plain_ || !token.special;
  auto& same = by_first_byte_[static_cast<unsigned char>(spelling.front())];
  // Behind those that are as long: the first of two equal spellings wins.
  same.insert(std::upper_bound(same.begin(), same.end(), number,
                               [&](uint32_t a, uint32_t b) {
                                 return tokens_[a].spelling.size() > tokens_[b].spelling.size();
                               }),
              number);
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text, size_t from,
                                                              bool specials) const {
  for (size_t at = from; at < text.size(); ++at) {
    for (const uint32_t number : by_first_byte_[static_cast<unsigned char>(text[at])]) {
      const Entry& token = tokens_[number];
      if (text.compare(at, token.spelling.size(), token.spelling) != 0) continue;
      Match match{at, at + token.spelling.size(), at + token.spelling.size(), -1};
      const std::string_view before = text.substr(0, match.begin), after = text.substr(match.end);
      if (token.special && !specials) return match;
      if (token.single_word && (is_word_character(last_character(before).code) ||
                                is_word_character(first_character(after).code)))
        return match;
      match.id = token.id;
      if (token.lstrip) {
        Character c;
        while (c = last_character(text.substr(0, match.begin)), is_white_space(c.code))
          match.begin -= c.bytes;
      }
      if (token.rstrip) {
        Character c;
        while (c = first_character(text.substr(match.end)), is_white_space(c.code))
          match.end += c.bytes;
      }
      return match;
    }
  }
  return std::nullopt;
}

}  // namespace smelt
