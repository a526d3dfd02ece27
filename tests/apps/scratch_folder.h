// A folder that a test writes into and that is gone afterwards, and whole files as strings.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include <stdlib.h>

namespace smelt::test {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "smelt-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::filesystem::path put(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);  // ext4 syncs a file that is cut and written again, which is slow
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

inline std::string get(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

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

}  // namespace smelt::test
