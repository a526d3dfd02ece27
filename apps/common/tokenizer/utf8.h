// UTF-8 as the Unicode standard defines it (table 3-7: no surrogates, no overlong forms, nothing
// above U+10FFFF), and the classes of characters that added tokens ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace smelt {

/// Length of the longest prefix of `text` that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);
/// Length of the longest prefix in which no valid character begins.
size_t invalid_utf8_prefix(std::string_view text);
/// Replaces every maximal ill-formed part by U+FFFD, which is what Python's
/// bytes.decode(errors="replace") gives to the tokenizers library.
std::string replace_invalid_utf8(std::string_view text);

/// The character at the beginning or end of `text`; kNoCharacter if none stands there.
inline constexpr char32_t kNoCharacter = 0xFFFFFFFF;
struct Character {
  char32_t code = kNoCharacter;
  size_t bytes = 0;
};
Character first_character(std::string_view text);
Character last_character(std::string_view text);

/// Appends the UTF-8 form of a code point.
void append_character(std::string& text, char32_t code);

/// White_Space of the Unicode database.
bool is_white_space(char32_t code);
/// `\w` as Unicode TS 18 and Rust define it: letters, marks, decimal digits, connectors, joiners.
bool is_word_character(char32_t code);

}  // namespace smelt
