#include "apps/common/append_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tensor/error.h"

namespace smelt {

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  SMELT_CHECK(IoError, file_ >= 0,
              path_ << ": cannot be opened for appending: " << std::strerror(errno));
}

AppendFile::~AppendFile() {
  if (file_ >= 0) ::close(file_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

void AppendFile::append(std::string_view record) {
  while (!record.empty()) {
    const ssize_t count = ::write(file_, record.data(), record.size());
    if (count < 0 && errno == EINTR) continue;
    SMELT_CHECK(RunError, count > 0, path_ << ": cannot be written: " << std::strerror(errno));
    record.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace smelt
