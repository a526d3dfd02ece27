// The decompressed bytes of a file or of standard input. Compression (gzip with all its members,
// zstd with all its frames, or none) is told by the first bytes, not by the name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace smelt {

class ByteSource {
 public:
  /// Opens `path`; "-" is standard input. @throws IoError when it cannot be read or is a folder.
  explicit ByteSource(const std::string& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// Fills `buffer`; fewer bytes than its size mean the end. @throws IoError naming the file for
  /// damaged compression or one that ends early.
  size_t read(std::vector<char>& buffer);
  /// Bytes taken from the file so far, before decompression.
  int64_t consumed() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smelt
