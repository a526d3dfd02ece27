// A file in memory, for parsers that read files: fuzzing would otherwise wait for the disk.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

namespace smelt::testing {

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes = {}) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0) std::abort();
    write(bytes);
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  /// A path by which this process can open it.
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  /// Replaces what it holds.
  void write(std::string_view bytes) const {
    if (ftruncate(fd_, 0) != 0 ||
        pwrite(fd_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }

 private:
  int fd_;
};

}  // namespace smelt::testing
