#include "apps/common/tokenizer/byte_level.h"

#include "apps/common/tokenizer/utf8.h"

namespace smelt {

const std::array<std::string, 256>& byte_level_alphabet() {
  static const std::array<std::string, 256> table = [] {
    std::array<std::string, 256> result;
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      append_character(result[byte], printable ? byte : next++);
    }
    return result;
  }();
  return table;
}

std::optional<std::string> byte_level_bytes(std::string_view spelling) {
  // Code points of the table lie below U+0144.
  static const std::array<int16_t, 0x144> bytes = [] {
    std::array<int16_t, 0x144> result;
    result.fill(-1);
    for (size_t byte = 0; byte < 256; ++byte)
      result[first_character(byte_level_alphabet()[byte]).code] = static_cast<int16_t>(byte);
    return result;
  }();
  std::string text;
  text.reserve(spelling.size());
  while (!spelling.empty()) {
    const Character c = first_character(spelling);
    if (c.code >= bytes.size() || bytes[c.code] < 0) return std::nullopt;
    text.push_back(static_cast<char>(bytes[c.code]));
    spelling.remove_prefix(c.bytes);
  }
  return text;
}

std::string byte_level_spelling(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += byte_level_alphabet()[static_cast<unsigned char>(byte)];
  return text;
}

}  // namespace smelt
