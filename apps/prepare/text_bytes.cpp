#include "apps/prepare/text_bytes.h"

#include <algorithm>

#include "apps/common/tokenizer/utf8.h"

namespace smelt {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace

bool is_utf8(std::string_view bytes) { return valid_utf8_prefix(bytes) == bytes.size(); }

std::string latin1_to_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 8);
  for (const char c : bytes) append_character(text, static_cast<unsigned char>(c));
  return text;
}

std::string decode_text(std::string bytes) {
  return is_utf8(bytes) ? std::move(bytes) : latin1_to_utf8(bytes);
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

size_t prefix_bytes(std::string_view text, size_t characters) {
  size_t at = 0;
  while (at < text.size()) {
    if (!continues(text[at]) && characters-- == 0) break;
    ++at;
  }
  return at;
}

size_t space_bytes(std::string_view text, size_t at) {
  const Character character = first_character(text.substr(at));
  return is_space(character.code) ? character.bytes : 0;
}

std::string_view strip_space(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t length = space_bytes(text, begin);
    if (length == 0) break;
    begin += length;
  }
  text.remove_prefix(begin);
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && continues(text[last])) --last;
    if (space_bytes(text, last) != text.size() - last) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string_view strip_newlines(std::string_view text) {
  const size_t begin = text.find_first_not_of('\n');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of('\n') + 1 - begin);
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

std::vector<std::string_view> split_paragraphs(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  size_t at = text.find('\n');
  while (at != std::string_view::npos) {
    size_t end = at + 1, last_newline = at;
    while (end < text.size()) {
      const size_t length = space_bytes(text, end);
      if (length == 0) break;
      if (text[end] == '\n') last_newline = end;
      end += length;
    }
    if (last_newline > at) {
      parts.push_back(text.substr(begin, at - begin));
      begin = last_newline + 1;
    }
    at = text.find('\n', last_newline + 1);
  }
  parts.push_back(text.substr(begin));
  return parts;
}

bool has_word_at(std::string_view text, size_t at, std::string_view word) {
  if (at > text.size() || text.size() - at < word.size()) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    if (lower(text[at + i]) != word[i]) return false;
  }
  return true;
}

size_t find_word(std::string_view text, std::string_view word, size_t from) {
  for (; from + word.size() <= text.size(); ++from) {
    if (has_word_at(text, from, word)) return from;
  }
  return std::string_view::npos;
}

}  // namespace smelt
