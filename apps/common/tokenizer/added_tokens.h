// Added tokens: texts that are one token each, found before anything else is done with a text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smelt {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< not where a word character touches it
  bool lstrip = false;       ///< takes the blanks before it
  bool rstrip = false;       ///< takes the blanks after it
  bool normalized = false;   ///< looked for in normalised text
  bool special = false;
};

/// Finds added tokens in text, the leftmost first, of those that begin there the longest.
class AddedTokenFinder {
 public:
  /// Looks for `token` where the text holds `spelling`, its normalised content or that itself.
  void add(const AddedToken& token, const std::string& spelling);

  /// Whether anything can be found.
  bool finds(bool specials) const { return specials ? !tokens_.empty() : plain_; }

  /// Calls sink(part, id) for the parts of `text` in order: found tokens with their id, what lies
  /// between them with -1. With `specials` false, special tokens are not found; as in the
  /// tokenizers library, their text still hides tokens that begin inside it.
  template <class Sink>
  void split(std::string_view text, bool specials, Sink&& sink) const {
    size_t done = 0;
    for (size_t from = 0; const auto match = find(text, from, specials);) {
      from = match->text_end;
      if (match->id < 0) continue;
      const size_t begin = match->begin < done ? done : match->begin;
      if (begin > done) sink(text.substr(done, begin - done), -1);
      sink(text.substr(match->begin, match->end - match->begin), match->id);
      done = match->end;
    }
    if (done < text.size()) sink(text.substr(done), -1);
  }

 private:
  struct Entry {
    std::string spelling;
    int32_t id;
    bool single_word, lstrip, rstrip, special;
  };
  struct Match {
    size_t begin, end;  // with the blanks it takes
    size_t text_end;    // where the search goes on
    int32_t id;         // -1: to be left as text
  };
  std::optional<Match> find(std::string_view text, size_t from, bool specials) const;

  std::vector<Entry> tokens_;
  std::array<std::vector<uint32_t>, 256> by_first_byte_;  // longest first
  bool plain_ = false;                                    // a token that is not special
};

}  // namespace smelt
