#include "apps/prepare/packages.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/common/process.h"
#include "apps/common/sha256.h"
#include "apps/prepare/text_bytes.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;

// The most telling line of apt's output: its last error, else its last line.
std::string reason(const std::string& output) {
  std::string last, error;
  for (const std::string_view line : split_at(output, "\n")) {
    if (strip_space(line).empty()) continue;
    last = strip_space(line);
    if (line.starts_with("E: ")) error = line.substr(3);
  }
  return error.empty() ? last : error;
}

std::string megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

class Cache {
 public:
  Cache(const std::vector<PackageInfo>& packages, fs::path dir)
      : packages_(packages), dir_(std::move(dir)) {}

  std::string path(const PackageInfo& package) const {
    return (dir_ / package.file_name()).string();
  }

  // Packages that are not there yet. A file with a wrong hash is removed first: it is a broken
  // download, and apt would not replace it.
  std::vector<PackageInfo> missing() const {
    std::vector<PackageInfo> present, absent;
    std::vector<std::string> paths;
    for (const PackageInfo& package : packages_) {
      if (!fs::exists(path(package))) {
        absent.push_back(package);
        continue;
      }
      present.push_back(package);
      paths.push_back(path(package));
    }
    const std::vector<std::string> hashes = sha256_of_files(paths);
    for (size_t i = 0; i < present.size(); ++i) {
      if (hashes[i] == present[i].sha256) continue;
      fs::remove(paths[i]);
      absent.push_back(present[i]);
    }
    return absent;
  }

  CommandResult download(const std::vector<PackageInfo>& packages) const {
    std::vector<std::string> command{"apt-get", "-q", "download"};
    for (const PackageInfo& package : packages) {
      command.push_back(package.name + '=' + package.version);
    }
    return run_command(command, dir_.string());
  }

 private:
  const std::vector<PackageInfo>& packages_;
  fs::path dir_;
};

}  // namespace

std::vector<std::string> fetch_packages(const std::vector<PackageInfo>& packages,
                                        const std::string& cache, const Report& report) {
  constexpr char kOffline[] = "; --input prepares text of your own without a network";
  std::error_code error;
  fs::create_directories(cache, error);
  SMELT_CHECK(IoError, !error, cache << ": cannot create this folder: " << error.message());
  const Cache store(packages, fs::absolute(cache));

  std::vector<PackageInfo> missing = store.missing();
  if (!missing.empty()) {
    int64_t bytes = 0;
    for (const PackageInfo& package : missing) bytes += package.download_bytes;
    report("downloading " + std::to_string(missing.size()) + " packages (" + megabytes(bytes) +
           ")");
    CommandResult result;
    try {
      result = store.download(missing);
      if (result.exit_code != 0) {
        report("apt-get download failed (" + reason(result.output) + "), updating its index");
        const CommandResult update = run_command({"apt-get", "-q", "update"}, cache);
        missing = store.missing();
        result = store.download(missing);
        if (result.exit_code != 0 && update.exit_code != 0) result.output += update.output;
      }
    } catch (const RunError& e) {
      throw RunError(std::string("corpus: the packages come from Debian's apt: ") + e.what() +
                     kOffline);
    }
    SMELT_CHECK(RunError, result.exit_code == 0,
                "corpus: cannot download " << missing.size() << " packages: apt-get: "
                                           << reason(result.output) << kOffline);
    missing = store.missing();
    SMELT_CHECK(RunError, missing.empty(),
                "corpus: package " << missing.front().name << ' ' << missing.front().version
                                   << " was downloaded, but its SHA-256 is not the expected "
                                   << missing.front().sha256);
  }
  std::vector<std::string> paths;
  for (const PackageInfo& package : packages) paths.push_back(store.path(package));
  return paths;
}

}  // namespace smelt
