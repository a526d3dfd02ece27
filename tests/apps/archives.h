// Tiny archives made in memory for the tests: tar, gzip, zlib, zstd.
#pragma once

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>

#include <zlib.h>
#include <zstd.h>

namespace smelt::testing {

inline void set_tar_checksum(std::string& header) {
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char text[8];
  std::snprintf(text, sizeof text, "%06o", sum & 0777777u);
  header.replace(148, 8, std::string(text, 7) + ' ');
}

/// One ustar member with its data, padded to blocks.
inline std::string tar_member(const std::string& name, std::string_view data, char type = '0',
                              const std::string& prefix = "") {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  char size[12];
  std::snprintf(size, sizeof size, "%011zo", data.size());
  header.replace(124, 11, size);
  header[156] = type;
  header.replace(257, 8, std::string("ustar\0", 6) + "00");
  header.replace(345, prefix.size(), prefix);
  set_tar_checksum(header);
  std::string block(data);
  block.resize((block.size() + 511) / 512 * 512);
  return header + block;
}

inline std::string tar_end() { return std::string(1024, '\0'); }

/// zlib data, or gzip with window_bits = 31.
inline std::string deflate_bytes(std::string_view data, int window_bits = 15) {
  z_stream stream{};
  if (deflateInit2(&stream, 9, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string out(deflateBound(&stream, data.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}
inline std::string gzip_bytes(std::string_view data) { return deflate_bytes(data, 31); }

inline std::string zstd_bytes(std::string_view data) {
  std::string out(ZSTD_compressBound(data.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), data.data(), data.size(), 3));
  return out;
}

}  // namespace smelt::testing
