// The configuration of a run: one plain struct per section of the INI file, and how it is read.
// Values come from the command line, then from --config FILE, then from the defaults below. The
// list of keys with their types, ranges and help texts is the table in config_schema.cpp; nothing
// else lists them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "moe/config.h"
#include "nn/schedule.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace smelt {

/// One token file of a domain: files PREFIX.bin and PREFIX.idx, drawn in proportion to weight.
struct DataSource {
  std::string domain;
  std::string prefix;
  double weight = 1;
  bool operator==(const DataSource&) const = default;
};

struct TrainConfig {
  int64_t seq_len = 256;      // target tokens of one sequence
  int64_t micro_batch = 4;    // sequences of one pass of one rank
  int64_t global_batch = 16;  // sequences of one optimizer step, over all ranks
  int64_t tokens = 4194304;   // length of the run
  DType dtype = DType::f32;
  bool document_mask = true;
  double grad_clip = 1;  // 0: off
  Recompute recompute = Recompute::none;
  int64_t seed = 1;
};

struct OptimConfig {
  double lr = 3e-3;
  double min_lr_ratio = 0.1;
  int64_t warmup_tokens = -1;  // -1 until resolved: 2 % of train.tokens
  Schedule schedule = Schedule::wsd;
  int64_t decay_tokens = -1;  // -1 until resolved: 20 % of train.tokens
  std::vector<int64_t> branch_tokens;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  bool decay_all = false;
};

struct DataConfig {
  std::vector<DataSource> train;
  std::vector<DataSource> valid;
  std::string tokenizer;  // tokenizer.json; empty: none
};

struct DistConfig {
  int64_t expert_parallel = 1;
};

struct RunSettings {
  std::string dir = "runs/run";
  std::string init;                // empty: random weights
  int64_t checkpoint_every = 500;  // 0: only at the end
  int64_t keep = 2;                // 0: all
  int64_t eval_every = 500;        // 0: only at the end
  int64_t eval_tokens = 262144;    // 0: all of data.valid
  int64_t log_every = 10;
  bool tensorboard = true;
  DeviceKind device = DeviceKind::cpu;
  int64_t time_limit = 0;  // 0: none
  double peak_flops = 0;   // FLOP/s of one rank at train.dtype; 0: unknown
};

struct RunConfig {
  ModelConfig model;  // [model], and [loop] as model.loop
  BalanceConfig moe;
  TrainConfig train;
  OptimConfig optim;
  DataConfig data;
  DistConfig dist;
  RunSettings run;

  /// Tokens of one optimizer step: global_batch * seq_len.
  int64_t tokens_per_step() const { return train.global_batch * train.seq_len; }
  /// Optimizer steps of the run: train.tokens / tokens_per_step(), rounded up.
  int64_t total_steps() const { return (train.tokens + tokens_per_step() - 1) / tokens_per_step(); }
};

/// Where a value came from, for messages and for --dry-run.
struct Origin {
  enum class Kind { default_value, derived, file, command_line };
  Kind kind = Kind::default_value;
  std::string file;  // Kind::file
  int line = 0;      // Kind::file
  std::string rule;  // Kind::derived: how the value was made
  /// "default", "derived: RULE", "FILE:LINE" or "command line".
  std::string text() const;
};

/// A setting as it was given, before its value is parsed.
struct Setting {
  std::string key;  // "section.key"
  std::string value;
  Origin origin;
};

struct LoadedConfig {
  RunConfig config;
  std::map<std::string, Origin> origins;  // every "section.key" of the schema
};

/// Settings of an INI file, in its order. @throws IoError if it cannot be read, ConfigError naming
/// file and line for a broken line, an unknown key or section, or a key given twice.
std::vector<Setting> read_ini_file(const std::string& path);
/// The same from text; name stands for the file in messages.
std::vector<Setting> read_ini_text(const std::string& text, const std::string& name);

/// Defaults, then file_settings, then command_line_settings (a list given on the command line
/// replaces that of the file). Automatic values (-1 of warmup_tokens, decay_tokens) are resolved.
/// @throws ConfigError naming where the setting stands, its value and what is allowed.
LoadedConfig merge_config(const std::vector<Setting>& file_settings,
                          const std::vector<Setting>& command_line_settings);
/// merge_config of one file and of "section.key=value" overrides, for tests and tools.
LoadedConfig load_config(const std::string& ini_path,
                         const std::vector<std::string>& overrides = {});
/// Reads text such as that of write_ini; name stands for the file in messages.
RunConfig parse_config(const std::string& ini_text, const std::string& name = "config.ini");

/// Refuses combinations of values that cannot work, as far as that needs no data: layout of heads,
/// experts and ranks, the loop span, batch sizes, schedule, device.
/// @throws ConfigError naming the keys, their values and what is allowed.
void validate(const RunConfig& config, int world_size);
/// The same, adding where the offending values were set.
void validate(const LoadedConfig& loaded, int world_size);
/// Refuses a run without training data or with validation domains named twice.
void validate_data(const RunConfig& config);

/// The whole configuration as INI text that parse_config reads back to the same values.
std::string write_ini(const RunConfig& config);
/// The same with only these keys ("section.key"); sections without one are left out.
std::string write_ini(const RunConfig& config, const std::set<std::string>& keys);
/// write_ini with the origin of each value as a comment, for --dry-run.
std::string write_ini_with_origins(const LoadedConfig& loaded);

/// Keys whose values differ, as text.
struct ConfigDifference {
  std::string key;  // "section.key"
  std::string before;
  std::string after;
};
std::vector<ConfigDifference> config_differences(const RunConfig& before, const RunConfig& after);

/// Words of the enumerations as they stand in files and on the command line.
const char* to_text(QkNorm value);
const char* to_text(LoopOrder value);
const char* to_text(LoopKv value);
const char* to_text(Balance value);
const char* to_text(AuxScope value);
const char* to_text(Schedule value);
const char* to_text(DeviceKind value);
const char* to_text(DType value);

}  // namespace smelt
