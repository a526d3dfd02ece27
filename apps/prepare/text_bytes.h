// Text as UTF-8 bytes: decoding, Unicode blanks, small string helpers shared by the extractors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smelt {

/// Whether `bytes` is well-formed UTF-8 (no surrogates, no overlong forms, at most U+10FFFF).
bool is_utf8(std::string_view bytes);
/// UTF-8 of bytes that are Latin-1.
std::string latin1_to_utf8(std::string_view bytes);
/// `bytes` if they are UTF-8, else read as Latin-1.
std::string decode_text(std::string bytes);
/// Number of code points of well-formed `text`.
size_t count_characters(std::string_view text);
/// Bytes of the first `characters` code points.
size_t prefix_bytes(std::string_view text, size_t characters);

/// Bytes of the Unicode white-space character at `at`, 0 if there is none.
size_t space_bytes(std::string_view text, size_t at);
/// `text` without white space at both ends.
std::string_view strip_space(std::string_view text);
/// `text` without line feeds at both ends.
std::string_view strip_newlines(std::string_view text);
/// Parts between occurrences of `separator`, at least one.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator);
/// Parts between empty or blank lines (the pattern \n\s*\n).
std::vector<std::string_view> split_paragraphs(std::string_view text);

/// ASCII lower case of one byte.
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
/// Whether `text` has `word` (lower case) at `at`, whatever the case.
bool has_word_at(std::string_view text, size_t at, std::string_view word);
/// First position >= `from` with `word` (lower case), whatever the case; npos if none.
size_t find_word(std::string_view text, std::string_view word, size_t from = 0);

}  // namespace smelt
