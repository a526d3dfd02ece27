// The training run: data, model, optimizer, schedule, and the run folder.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/json.hpp>

#include "apps/common/checkpoint.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/common/signals.h"
#include "apps/common/validation.h"
#include "apps/pretrain/run_log.h"
#include "apps/pretrain/step_profile.h"
#include "apps/pretrain/summary.h"
#include "moe/budget.h"
#include "moe/train_step.h"

namespace smelt {

struct TrainerOptions {
  RunMode mode = RunMode::fresh;
  bool accept_changes = false;     // resume although settings that shape the run differ
  int64_t max_skipped_steps = 20;  // in a row, before the run ends with an error
  StepProfile* profile = nullptr;  // of this rank; null: none
};

class Trainer {
 public:
  /// Opens the data, builds the model and opens the run folder (resuming where asked). Everything
  /// that can be wrong with the input is found here, before the folder is touched. Collective.
  Trainer(const RunConfig& config, const TrainerOptions& options, const dist::World& world);

  enum class End { finished, stopped };
  /// Trains to the end of the token budget, or until a signal or the time limit; saves either way.
  /// @throws RunError after too many skipped steps in a row, or when a checkpoint cannot be
  /// written.
  End run();

  const BlendedDataset& data() const { return *data_; }
  const TrainerState& state() const { return state_; }
  /// What this process has done so far; without the matrix rate. Collective.
  RunOutcome outcome() const;
  /// The last endpoint of the run as in endpoints.jsonl (null when stopped early).
  const boost::json::value& endpoint() const { return endpoint_; }

 private:
  bool first() const { return world_.world().rank() == 0; }
  void note(const std::string& text);
  std::string find_checkpoint();
  void resume(const std::string& checkpoint);
  void load(const std::string& checkpoint);
  void check_unchanged(const std::string& checkpoint_config) const;
  void check_branches() const;
  void open_folder();
  bool branch_done(int64_t end_tokens) const;
  std::string branch_folder(int64_t end_tokens) const;
  ScheduleConfig schedule(int64_t end_tokens) const;
  std::vector<ModelInput> next_batches();
  void step(const ScheduleConfig& schedule, int64_t branch_tokens);
  void train_to(int64_t last_step, const ScheduleConfig& schedule, int64_t branch_tokens);
  void log(const StepMetrics& metrics, double lr, double seconds, int64_t total_steps,
           int64_t branch_tokens);
  void evaluate_and_log(int64_t branch_tokens);
  void log_validation(const std::vector<DomainLoss>& domains, int64_t branch_tokens);
  void finish(int64_t branch_tokens);
  bool finished();
  bool run_branch(int64_t end_tokens);
  void save();
  void save_to(const std::string& path);
  bool must_stop();
  int64_t steps_of(int64_t tokens) const;

  RunConfig config_;
  TrainerOptions options_;
  dist::World world_;
  RunFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenizerFiles tokenizer_files_;
  std::unique_ptr<BlendedDataset> data_;
  std::unique_ptr<Validation> validation_;
  std::unique_ptr<MoeTransformer> model_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
  TrainerState state_;
  std::unique_ptr<RunLog> log_;  // on the first rank
  Progress progress_;
  TimeLimit time_limit_;
  double context_sum_ = 0;  // keys seen by all queries so far
  int64_t skipped_in_row_ = 0;
  int64_t saved_step_ = -1;
  int64_t stop_ = 0;  // agreed by all ranks
  int64_t steps_here_ = 0;
  double train_seconds_ = 0, window_seconds_ = 0, window_tokens_ = 0;
  std::vector<DomainLoss> last_validation_;
  std::string last_checkpoint_;
  boost::json::value endpoint_;
};

}  // namespace smelt
