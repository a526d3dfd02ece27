// The folder of a run: config.ini, metrics.jsonl, endpoints.jsonl, tensorboard/,
// checkpoints/step-N/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/config.h"

namespace smelt {

struct Checkpoint {
  int64_t step = 0;
  std::string path;
};

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string config_ini() const { return path_ + "/config.ini"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string endpoints() const { return path_ + "/endpoints.jsonl"; }
  /// Whole checkpoints at the end of each decay branch.
  std::string branches() const { return path_ + "/branches"; }
  std::string tensorboard() const { return path_ + "/tensorboard"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  /// Where the whole checkpoint of a step stands.
  std::string checkpoint(int64_t step) const;
  /// Checkpoints by ascending step: folders named exactly step-N.
  std::vector<Checkpoint> list_checkpoints() const;
  /// The one with the highest step.
  std::optional<Checkpoint> latest_checkpoint() const;

 private:
  std::string path_;
};

enum class RunMode {
  fresh,      // refuse a folder that already holds a run
  resume,     // go on from its latest checkpoint, or begin when it holds none
  overwrite,  // remove the earlier run's files (nothing else) and begin
};

struct OpenedRun {
  RunFolder folder;
  std::optional<Checkpoint> resume_from;      // only with RunMode::resume
  std::vector<ConfigDifference> differences;  // resumed with these keys changed
};

/// Creates the folder and writes config.ini (header as comment lines on top of write_ini).
/// @throws ConfigError when the folder holds a run and mode is fresh, naming the keys that differ,
///         or when resuming with another [model] or [loop]; IoError when it cannot be written
OpenedRun open_run_folder(const RunConfig& config, RunMode mode, const std::string& header = "");

/// The whole file as text. @throws IoError with the system's reason
std::string read_text_file(const std::string& path);

}  // namespace smelt
