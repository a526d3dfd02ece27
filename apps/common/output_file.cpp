#include "apps/common/output_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "tensor/error.h"

namespace smelt {

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  temporary_ = path_;
  temporary_ += ".tmp-" + std::to_string(getpid());
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("create");
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!published_) unlink(temporary_.c_str());
}

void OutputFile::write(const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    // A short count is no error yet: the next call then says why, for example that the disk is
    // full.
    const ssize_t written = ::write(fd_, next, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write");
    }
    next += written;
    size -= size_t(written);
  }
}

void OutputFile::close() {
  if (fd_ < 0) return;
  if (fsync(fd_) != 0) fail("sync");
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail("close");
}

void OutputFile::publish() {
  close();
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  published_ = true;
}

void OutputFile::fail(const char* action) const {
  throw RunError(path_.string() + ": cannot " + action + " the file: " + std::strerror(errno));
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.publish();
}

void sync_path(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  SMELT_CHECK(RunError, fd >= 0,
              path.string() << ": cannot open to sync: " << std::strerror(errno));
  const int result = fsync(fd);
  const int reason = errno;
  ::close(fd);
  SMELT_CHECK(RunError, result == 0, path.string() << ": cannot sync: " << std::strerror(reason));
}

}  // namespace smelt
