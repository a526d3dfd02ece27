#include "apps/common/run_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/common/config_schema.h"
#include "apps/common/output_file.h"

namespace smelt {
namespace fs = std::filesystem;
namespace {

constexpr const char* kStep = "step-";

std::string reason() { return std::strerror(errno); }

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  SMELT_CHECK(IoError, !error && fs::is_directory(path),
              path << ": cannot create the folder: "
                   << (error ? error.message() : std::string("a file stands in its place")));
}

bool holds_run(const RunFolder& folder) {
  return fs::exists(folder.metrics()) || fs::exists(folder.endpoints()) ||
         !folder.list_checkpoints().empty();
}

std::string differences_text(const std::vector<ConfigDifference>& differences) {
  std::string text;
  for (size_t i = 0; i < differences.size() && i < 4; ++i)
    text += (i > 0 ? ", " : "") + differences[i].key + " " + differences[i].before + " -> " +
            differences[i].after;
  if (differences.size() > 4) text += ", and " + std::to_string(differences.size() - 4) + " more";
  return text;
}

// Keys that say where and how often, not what is trained.
bool only_running(const ConfigDifference& difference) {
  return difference.key.rfind("run.", 0) == 0;
}

bool changes_model(const ConfigDifference& difference) {
  return difference.key.rfind("model.", 0) == 0 || difference.key.rfind("loop.", 0) == 0;
}

OpenedRun open_checked(const RunConfig& config, RunMode mode, const std::string& header) {
  OpenedRun run{RunFolder(config.run.dir), std::nullopt, {}};
  const RunFolder& folder = run.folder;
  std::optional<RunConfig> earlier;
  if (fs::is_regular_file(folder.config_ini()) && mode != RunMode::overwrite)
    earlier = parse_config(read_text_file(folder.config_ini()), folder.config_ini());
  if (earlier) run.differences = config_differences(*earlier, config);

  if (mode == RunMode::fresh) {
    std::vector<ConfigDifference> others = run.differences;
    std::erase_if(others, only_running);
    SMELT_CHECK(ConfigError, others.empty(),
                folder.path() << " holds a run with another configuration ("
                              << differences_text(others)
                              << "); choose another --run.dir, or give --overwrite");
    SMELT_CHECK(ConfigError, !holds_run(folder),
                folder.path() << " already holds a run; give --resume to go on with it, "
                                 "--overwrite to begin again, or another --run.dir");
  }
  if (mode == RunMode::resume) {
    std::vector<ConfigDifference> others = run.differences;
    std::erase_if(others, [](const ConfigDifference& d) { return !changes_model(d); });
    SMELT_CHECK(ConfigError, others.empty(),
                folder.path() << " cannot be resumed with another model ("
                              << differences_text(others) << ")");
    run.resume_from = folder.latest_checkpoint();
  }
  if (mode == RunMode::overwrite) {
    for (const std::string& path :
         {folder.config_ini(), folder.metrics(), folder.endpoints(), folder.tensorboard(),
          folder.branches(), folder.checkpoints()}) {
      std::error_code error;
      fs::remove_all(path, error);
      SMELT_CHECK(IoError, !error, path << ": cannot be removed: " << error.message());
    }
  }
  make_folder(folder.path());
  make_folder(folder.checkpoints());
  std::string text;
  std::istringstream lines(header);
  for (std::string line; std::getline(lines, line);) text += "# " + line + "\n";
  write_file(folder.config_ini(), text + write_ini(config));
  return run;
}

}  // namespace

std::string RunFolder::checkpoint(int64_t step) const {
  return checkpoints() + "/" + kStep + std::to_string(step);
}

std::vector<Checkpoint> RunFolder::list_checkpoints() const {
  std::vector<Checkpoint> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints(), error)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!entry.is_directory() || name.rfind(kStep, 0) != 0) continue;
    const std::string digits = name.substr(std::strlen(kStep));
    // Only the very name that checkpoint() gives: no sign, no leading zeros, nothing behind.
    if (!parse_integer(digits, &step) || step < 0 || std::to_string(step) != digits) continue;
    found.push_back({step, entry.path().string()});
  }
  std::sort(found.begin(), found.end(),
            [](const Checkpoint& a, const Checkpoint& b) { return a.step < b.step; });
  return found;
}

std::optional<Checkpoint> RunFolder::latest_checkpoint() const {
  const std::vector<Checkpoint> found = list_checkpoints();
  if (found.empty()) return std::nullopt;
  return found.back();
}

OpenedRun open_run_folder(const RunConfig& config, RunMode mode, const std::string& header) {
  // Whatever keeps the folder from being read or written is a fault of the path that was given.
  try {
    return open_checked(config, mode, header);
  } catch (const fs::filesystem_error& error) {
    throw IoError(config.run.dir + ": " + error.code().message());
  } catch (const RunError& error) {
    throw IoError(error.what());
  }
}

std::string read_text_file(const std::string& path) {
  SMELT_CHECK(IoError, !fs::is_directory(path), path << ": is a folder, a file is needed");
  std::ifstream in(path, std::ios::binary);
  SMELT_CHECK(IoError, in.is_open(), path << ": cannot be read: " << reason());
  std::ostringstream text;
  text << in.rdbuf();
  SMELT_CHECK(IoError, !in.bad(), path << ": cannot be read: " << reason());
  return text.str();
}

}  // namespace smelt
