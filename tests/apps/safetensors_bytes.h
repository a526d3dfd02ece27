// Safetensors files made byte by byte.
#pragma once

#include <cstdint>
#include <string>

namespace smelt::testing {

/// The 8 bytes of a little-endian number.
inline std::string u64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += char(value >> (8 * i) & 0xff);
  return bytes;
}

/// A safetensors file with this header text and so many bytes of data (0, 1, 2, ...).
inline std::string file_bytes(const std::string& header, size_t data_bytes) {
  std::string bytes = u64(header.size()) + header;
  for (size_t i = 0; i < data_bytes; ++i) bytes += char(i & 0xff);
  return bytes;
}

}  // namespace smelt::testing
