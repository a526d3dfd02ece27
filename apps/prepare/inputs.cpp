#include "apps/prepare/inputs.h"

#include <algorithm>
#include <filesystem>

#include "tensor/error.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;

InputFile describe_file(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  // A pipe has no size; opening will tell what is wrong with anything else.
  if (error) return {path.string(), -1, 0};
  const auto modified = fs::last_write_time(path, error);
  return {path.string(), static_cast<int64_t>(bytes),
          error ? 0 : static_cast<int64_t>(modified.time_since_epoch().count())};
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error), end;
  for (; !error && entries != end; entries.increment(error)) {
    if (entries->path().filename().string().starts_with('.')) {
      if (entries->is_directory()) entries.disable_recursion_pending();
    } else if (entries->is_regular_file()) {
      files.push_back(entries->path());
    }
  }
  SMELT_CHECK(IoError, !error, folder.string() << ": cannot list: " << error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<InputFile> find_inputs(const std::vector<std::string>& paths) {
  std::vector<InputFile> inputs;
  for (const std::string& path : paths) {
    if (path == "-") {
      SMELT_CHECK(ConfigError, paths.size() == 1, "--input: '-' (standard input) must stand alone");
      return {{"-", -1, 0}};
    }
    SMELT_CHECK(IoError, fs::exists(path), "--input: " << path << ": no such file or folder");
    if (!fs::is_directory(path)) {
      inputs.push_back(describe_file(path));
      continue;
    }
    const std::vector<fs::path> files = files_below(path);
    SMELT_CHECK(ConfigError, !files.empty(), "--input: " << path << ": the folder holds no files");
    for (const fs::path& file : files) inputs.push_back(describe_file(file));
  }
  return inputs;
}

}  // namespace smelt
