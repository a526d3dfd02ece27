// A file that grows by whole records while others read it.
#pragma once

#include <string>
#include <string_view>

namespace smelt {

class AppendFile {
 public:
  /// Opens path for appending and creates it when missing. @throws IoError
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  /// Appends a record in one write, so that a reader and a killed process see whole ones only.
  /// @throws RunError when the disk is full or the file is gone.
  void append(std::string_view record);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace smelt
