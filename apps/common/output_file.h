// Output file of a save: every failed or short write, a full disk included, is an error that names
// the file, and nothing stays behind under the final name unless everything reached the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace smelt {

/// Writes to a temporary name beside `path`; publish() gives the file its own name. Destroyed
/// before that, it removes what it wrote. A file size limit (ulimit -f) is reported like a full
/// disk only in a process that ignores SIGXFSZ, which by default ends it.
class OutputFile {
 public:
  /// Creates the temporary file. Throws RunError naming the file when that fails.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Appends `size` bytes; throws RunError naming the file and the system's reason.
  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Brings the bytes to the disk and closes the file, still under its temporary name.
  void close();
  /// close() where that is still to be done, then renames, replacing an older file of that name.
  void publish();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  bool published_ = false;
};

/// Writes a whole small file through OutputFile.
void write_file(const std::filesystem::path& path, std::string_view text);
/// Brings a file's bytes, or a folder's list of names, to the disk. Throws RunError naming it.
void sync_path(const std::filesystem::path& path);

}  // namespace smelt
