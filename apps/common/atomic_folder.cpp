#include "apps/common/atomic_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include "apps/common/output_file.h"
#include "tensor/error.h"

namespace smelt {
namespace fs = std::filesystem;
namespace json = boost::json;
namespace {

constexpr const char* kMark = "complete";
constexpr uintmax_t kMaxMarkBytes = 16 << 20;

/// A descriptor of the folder with its lock, or -1. Locks end with their process, even a killed
/// one, and unlike a process number cannot be mistaken for those of a later process.
int lock_folder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    close(fd);
    errno = reason;
    return -1;
  }
  return fd;
}

/// Sizes of all files below `folder` by relative name; syncs each file and each folder.
std::map<std::string, uintmax_t> sync_files(const fs::path& folder) {
  std::map<std::string, uintmax_t> sizes;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const bool folder_entry = entry.is_directory() && !entry.is_symlink();
    SMELT_CHECK(RunError, folder_entry || (entry.is_regular_file() && !entry.is_symlink()),
                entry.path().string() << ": only plain files and folders can be saved");
    sync_path(entry.path());
    if (!folder_entry) sizes[entry.path().lexically_relative(folder).string()] = entry.file_size();
  }
  SMELT_CHECK(RunError, sizes.count(kMark) == 0,
              (folder / kMark).string() << ": this name is kept for the completeness mark");
  return sizes;
}

std::string print_mark(const std::map<std::string, uintmax_t>& sizes) {
  std::string text = "{\"files\": {";
  for (const auto& [name, size] : sizes) {
    text += text.back() == '{' ? "\n  " : ",\n  ";
    text += json::serialize(json::string_view(name)) + ": " + std::to_string(size);
  }
  return text + "\n}}\n";
}

/// Owner's number from ".tmp-<name>-<pid>", or 0.
pid_t owner_of(const std::string& name) {
  const size_t dash = name.rfind('-');
  if (name.rfind(".tmp-", 0) != 0 || dash < 5) return 0;
  const std::string digits = name.substr(dash + 1);
  if (digits.empty() || digits.size() > 9 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return 0;
  }
  return pid_t(std::stol(digits));
}

/// Whether no living process fills this temporary folder.
bool is_abandoned(const fs::path& folder, pid_t owner) {
  const int lock = lock_folder(folder);
  if (lock >= 0) {
    close(lock);
    return true;
  }
  if (errno == EWOULDBLOCK) return false;
  // A file system without locks: all there is to go by is the process number.
  return kill(owner, 0) != 0 && errno == ESRCH;
}

}  // namespace

AtomicFolder::AtomicFolder(fs::path final_path) : final_path_(std::move(final_path)) {
  if (!final_path_.has_filename()) final_path_ = final_path_.parent_path();  // "runs/a/"
  SMELT_CHECK(ConfigError, final_path_.has_filename(), "no folder name to save to");
  std::error_code error;
  SMELT_CHECK(ConfigError,
              fs::symlink_status(final_path_, error).type() == fs::file_type::not_found,
              final_path_.string() << ": exists already; choose another name or remove it");
  temporary_ = final_path_.parent_path() /
               (".tmp-" + final_path_.filename().string() + "-" + std::to_string(getpid()));
  if (final_path_.has_parent_path()) fs::create_directories(final_path_.parent_path(), error);
  SMELT_CHECK(RunError, !error || error == std::errc::no_such_file_or_directory,
              final_path_.parent_path().string() << ": cannot create: " << error.message());
  // In containers the same number comes back soon: a dead process's folder may be in the way.
  if (fs::exists(temporary_, error) && is_abandoned(temporary_, getpid())) {
    fs::remove_all(temporary_, error);
  }
  SMELT_CHECK(
      RunError, fs::create_directory(temporary_, error) && !error,
      temporary_.string() << ": cannot create: " << (error ? error.message() : "exists already"));
  lock_ = lock_folder(temporary_);  // where locks do not exist, the name has to do
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
  if (lock_ >= 0) close(lock_);
}

void AtomicFolder::commit() {
  SMELT_CHECK(RunError, !committed_, final_path_.string() << ": committed already");
  try {
    const auto sizes = sync_files(temporary_);
    write_file(temporary_ / kMark, print_mark(sizes));
    sync_path(temporary_);
  } catch (const fs::filesystem_error& error) {
    throw RunError(temporary_.string() + ": cannot save: " + error.code().message());
  }
  int result =
      renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_path_.c_str(), RENAME_NOREPLACE);
  if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
    // A file system that cannot refuse by itself. rename() would replace an empty folder only.
    std::error_code error;
    SMELT_CHECK(RunError, !fs::exists(final_path_, error),
                final_path_.string() << ": cannot save there: it exists already");
    result = rename(temporary_.c_str(), final_path_.c_str());
  }
  SMELT_CHECK(RunError, result == 0,
              final_path_.string() << ": cannot save there: " << std::strerror(errno));
  committed_ = true;
  sync_path(final_path_.has_parent_path() ? final_path_.parent_path() : fs::path("."));
}

std::string why_incomplete(const fs::path& folder) {
  const fs::path mark = folder / kMark;
  std::error_code error;
  if (!fs::is_regular_file(mark, error)) return mark.string() + ": missing";
  if (fs::file_size(mark, error) > kMaxMarkBytes || error) return mark.string() + ": not a mark";
  std::ifstream in(mark, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const json::value value = json::parse(text, error);
  const json::object* top = error ? nullptr : value.if_object();
  const json::value* files = top == nullptr ? nullptr : top->if_contains("files");
  if (files == nullptr || !files->is_object()) return mark.string() + ": not a mark";
  for (const auto& [key, size] : files->get_object()) {
    const fs::path file = folder / fs::path(std::string(key));
    if (!size.is_int64() || key.find('\0') != json::string_view::npos) {
      return mark.string() + ": not a mark";
    }
    if (!fs::is_regular_file(file, error)) return file.string() + ": missing";
    const uintmax_t found = fs::file_size(file, error);
    if (error || found != uintmax_t(size.get_int64())) {
      return file.string() + ": " + std::to_string(found) + " bytes instead of " +
             std::to_string(size.get_int64());
    }
  }
  return {};
}

std::vector<fs::path> remove_stale(const fs::path& parent) {
  std::vector<fs::path> stale;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    const pid_t owner = owner_of(entry.path().filename().string());
    if (owner > 0 && fs::symlink_status(entry.path(), error).type() == fs::file_type::directory &&
        is_abandoned(entry.path(), owner)) {
      stale.push_back(entry.path());
    }
  }
  for (const fs::path& folder : stale) fs::remove_all(folder, error);
  std::sort(stale.begin(), stale.end());
  return stale;
}

}  // namespace smelt
