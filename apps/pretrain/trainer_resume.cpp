// Where a run goes on: which checkpoint, whether the settings allow it, and what the run folder
// keeps.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

#include "apps/common/atomic_folder.h"
#include "apps/pretrain/trainer.h"
#include "dist/collectives.h"

namespace smelt {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

/// Settings that change where and how a run is executed, not what it computes.
bool free_to_change(const std::string& key) {
  return key.starts_with("run.") || key.starts_with("dist.") || key == "train.micro_batch" ||
         key == "train.recompute" || key.starts_with("data.valid");
}

/// Moves a damaged folder out of the way of a whole one; an older one set aside before goes.
void set_aside(const fs::path& folder) {
  const fs::path aside = folder.parent_path() / ("damaged-" + folder.filename().string());
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(folder, aside, error);
  SMELT_CHECK(RunError, !error,
              folder.string() << ": cannot be moved to " << aside.filename().string() << ": "
                              << error.message());
}

}  // namespace

std::string Trainer::find_checkpoint() {
  const std::vector<Checkpoint> all = folder_.list_checkpoints();
  std::string fault;
  for (size_t i = all.size(); i-- > 0;) {
    fault = why_incomplete(all[i].path);
    if (fault.empty()) return all[i].path;
    note("passing over a damaged checkpoint: " + fault);
  }
  SMELT_CHECK(IoError, all.empty(),
              folder_.path() << " has no whole checkpoint to go on from: " << fault
                             << "; give --overwrite to begin again");
  return {};
}

void Trainer::open_folder() {
  open_run_folder(config_, options_.mode);
  remove_stale(folder_.checkpoints());
  remove_stale(folder_.branches());
  for (const Checkpoint& c : folder_.list_checkpoints()) {
    if (c.step > state_.step && !is_complete(c.path)) set_aside(c.path);
  }
  std::set<int64_t> done;
  for (const int64_t end : config_.optim.branch_tokens) {
    const std::string folder = branch_folder(end);
    if (is_complete(folder)) {
      done.insert(end);
    } else if (fs::exists(folder)) {
      note("a damaged branch runs again: " + why_incomplete(folder));
      set_aside(folder);
    }
  }
  // Steps of the trunk behind the checkpoint run again, finished branches do not.
  const int64_t dropped =
      truncate_metrics(folder_.metrics(), state_.step, [&](const json::object& line) {
        const json::value* branch = line.if_contains("branch_tokens");
        return branch != nullptr && branch->is_int64() && done.count(branch->as_int64()) > 0;
      });
  if (dropped > 0)
    note(std::to_string(dropped) + " logged lines after step " + std::to_string(state_.step) +
         " are dropped: their steps run again");
  log_ = std::make_unique<RunLog>(folder_, config_.run.tensorboard,
                                  read_text_file(folder_.config_ini()));
}

void Trainer::resume(const std::string& checkpoint) {
  check_unchanged(checkpoint + "/config.ini");
  SMELT_CHECK(
      ConfigError,
      read_trainer_state(checkpoint).data_fingerprint == state_.data_fingerprint ||
          options_.accept_changes,
      checkpoint << ": the training data have changed since this checkpoint was written; give "
                 << "--accept-changes to go on with other data");
  load(checkpoint);
  note("resumed from " + checkpoint + " at step " + std::to_string(state_.step));
}

void Trainer::load(const std::string& checkpoint) {
  const std::string fingerprint = state_.data_fingerprint;
  state_ = load_checkpoint(checkpoint, *model_, *optimizer_, config_);
  state_.data_fingerprint = fingerprint;
  // A sum of whole numbers, so rounding gives it back exactly.
  context_sum_ = std::round(state_.mean_context * double(state_.tokens));
  saved_step_ = state_.step;
  skipped_in_row_ = 0;
}

void Trainer::check_unchanged(const std::string& checkpoint_config) const {
  const RunConfig before = parse_config(read_text_file(checkpoint_config), checkpoint_config);
  for (const ConfigDifference& d : config_differences(before, config_)) {
    if (free_to_change(d.key)) continue;
    const bool of_model = d.key.starts_with("model.") || d.key.starts_with("loop.");
    SMELT_CHECK(ConfigError, options_.accept_changes && !of_model,
                d.key << " = " << d.after << " differs from " << d.before << " in "
                      << checkpoint_config
                      << (of_model ? "; a run cannot go on with another model"
                                   : "; give --accept-changes to go on with the new value"));
    if (first())
      std::fprintf(stderr, "going on with %s = %s (was %s)\n", d.key.c_str(), d.after.c_str(),
                   d.before.c_str());
  }
}

std::string Trainer::branch_folder(int64_t end_tokens) const {
  return folder_.branches() + "/tokens-" + std::to_string(end_tokens);
}

bool Trainer::branch_done(int64_t end_tokens) const {
  return dist::any(first() && is_complete(branch_folder(end_tokens)), world_.world());
}

void Trainer::check_branches() const {
  if (options_.mode != RunMode::resume) return;
  for (const int64_t end : config_.optim.branch_tokens) {
    const ScheduleConfig branch = schedule(end);
    const int64_t leaves = branch.total_steps - branch.decay_steps;
    SMELT_CHECK(ConfigError, state_.step <= leaves || branch_done(end),
                "optim.branch_tokens: the branch to "
                    << end << " tokens leaves at step " << leaves << ", but the run stands at step "
                    << state_.step << " already and " << branch_folder(end) << " is not whole");
  }
}

}  // namespace smelt
