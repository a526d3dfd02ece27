#include "apps/common/tokenizer/utf8.h"

#include <cstring>

#include <utf8proc.h>

namespace smelt {
namespace {

// What stands at the first byte: a whole character of `bytes` bytes, or an ill-formed part.
struct Step {
  size_t bytes;
  bool valid;
};

Step step(const unsigned char* p, size_t size) {
  const unsigned char lead = p[0];
  if (lead < 0x80) return {1, true};
  size_t length = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= size || p[i] < low || p[i] > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

char32_t code_of(const unsigned char* p, size_t bytes) {
  switch (bytes) {
    case 1:
      return p[0];
    case 2:
      return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    case 3:
      return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    default:
      return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
  }
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  const unsigned char* p = bytes_of(text);
  const size_t size = text.size();
  size_t i = 0;
  while (i < size) {
    if (p[i] < 0x80) {
      uint64_t eight;
      while (i + 8 <= size && (std::memcpy(&eight, p + i, 8), (eight & 0x8080808080808080u) == 0))
        i += 8;
      while (i < size && p[i] < 0x80) ++i;
      continue;
    }
    const Step s = step(p + i, size - i);
    if (!s.valid) return i;
    i += s.bytes;
  }
  return size;
}

size_t invalid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const Step s = step(bytes_of(text) + i, text.size() - i);
    if (s.valid) break;
    i += s.bytes;
  }
  return i;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    result += "\xEF\xBF\xBD";
    text.remove_prefix(step(bytes_of(text), text.size()).bytes);
  }
  return result;
}

Character first_character(std::string_view text) {
  if (text.empty()) return {};
  const Step s = step(bytes_of(text), text.size());
  return s.valid ? Character{code_of(bytes_of(text), s.bytes), s.bytes} : Character{};
}

Character last_character(std::string_view text) {
  for (size_t back = 1; back <= 4 && back <= text.size(); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    if ((bytes_of(tail)[0] & 0xC0) == 0x80) continue;
    const Character c = first_character(tail);
    return c.bytes == back ? c : Character{};
  }
  return {};
}

void append_character(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_word_character(char32_t code) {
  if (code == kNoCharacter) return false;
  if (code == 0x200C || code == 0x200D) return true;  // Join_Control
  // Other_Alphabetic outside the letters and marks: circled and squared Latin letters.
  if ((code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
      (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189))
    return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace smelt
