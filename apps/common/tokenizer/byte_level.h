// The byte table of byte-level BPE: files spell every byte as one printable character, so that a
// token, whatever its bytes, is a JSON string without blanks.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace smelt {

/// The printable form of each byte: a string of one UTF-8 character. 0x21-0x7E, 0xA1-0xAC and
/// 0xAE-0xFF stand for themselves; the other 68 bytes are U+0100 to U+0143 in ascending order.
const std::array<std::string, 256>& byte_level_alphabet();

/// The bytes that `spelling` stands for, or nothing if a character is outside the table.
std::optional<std::string> byte_level_bytes(std::string_view spelling);
/// The reverse.
std::string byte_level_spelling(std::string_view bytes);

}  // namespace smelt
