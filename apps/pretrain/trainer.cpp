#include "apps/pretrain/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "apps/common/atomic_folder.h"
#include "apps/common/budget_json.h"
#include "apps/common/output_file.h"
#include "apps/common/sha256.h"
#include "dist/collectives.h"
#include "tensor/allocator.h"

namespace smelt {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// tokenizer.json: where the configuration says, else beside the first training file.
std::string tokenizer_path(const RunConfig& config) {
  if (!config.data.tokenizer.empty()) return config.data.tokenizer;
  const fs::path beside =
      fs::path(config.data.train.front().prefix).parent_path() / "tokenizer.json";
  return fs::exists(beside) ? beside.string() : std::string();
}

/// Share of run.eval_tokens of one validation domain; 0: all.
int64_t tokens_per_domain(const RunConfig& config) {
  if (config.data.valid.empty() || config.run.eval_tokens == 0) return 0;
  return std::max<int64_t>(1, config.run.eval_tokens / int64_t(config.data.valid.size()));
}

/// Whether a line of endpoints.jsonl is that of this number of tokens.
bool ends_at(const json::object& endpoint, int64_t tokens) {
  const json::value* found = endpoint.if_contains("tokens");
  return found != nullptr && found->is_int64() && found->as_int64() == tokens;
}

json::object losses_json(const std::vector<DomainLoss>& domains) {
  json::object result;
  const auto add = [&](const DomainLoss& d) {
    result[d.domain] = {{"nats_per_token", number_or_null(d.nats_per_token())},
                        {"bits_per_byte", number_or_null(d.bits_per_byte())},
                        {"tokens", int64_t(d.targets)}};
  };
  add(overall(domains));
  for (const DomainLoss& d : domains) add(d);
  return result;
}

}  // namespace

Trainer::Trainer(const RunConfig& config, const TrainerOptions& options, const dist::World& world)
    : config_(config),
      options_(options),
      world_(world),
      folder_(config.run.dir),
      time_limit_(double(config.run.time_limit)) {
  validate_data(config_);
  int32_t eod_id = -1;
  if (const std::string path = tokenizer_path(config_); !path.empty()) {
    tokenizer_ = load_tokenizer(path);
    eod_id = tokenizer_->eod_id();
    tokenizer_files_ = {tokenizer_->json_text(), tokenizer_->config_text(), eod_id};
    SMELT_CHECK(ConfigError, tokenizer_->vocab_size() <= config_.model.vocab_size,
                "model.vocab_size = " << config_.model.vocab_size << " is below the tokenizer's "
                                      << tokenizer_->vocab_size() << " (" << path << ")");
  }
  SMELT_CHECK(ConfigError, eod_id >= 0 || !config_.train.document_mask,
              "data.tokenizer is needed for train.document_mask: it tells the end-of-document id");

  DatasetConfig data{.domains = {},
                     .seq_len = config_.train.seq_len,
                     .vocab_size = config_.model.vocab_size,
                     .eod_id = std::max(eod_id, 0),  // without the mask no id ends anything
                     .document_mask = config_.train.document_mask,
                     .seed = uint64_t(config_.train.seed)};
  for (const DataSource& source : config_.data.train)
    data.domains.push_back({source.domain, source.prefix, source.weight});
  data_ = std::make_unique<BlendedDataset>(data);
  validation_ =
      std::make_unique<Validation>(config_.data.valid,
                                   ValidationConfig{.seq_len = config_.train.seq_len,
                                                    .batch = config_.train.micro_batch,
                                                    .max_tokens = tokens_per_domain(config_),
                                                    .document_mask = config_.train.document_mask},
                                   config_.model.vocab_size, std::max(eod_id, 0), tokenizer_.get());

  model_ = std::make_unique<MoeTransformer>(config_.model, config_.train.dtype, world_);
  model_->set_recompute(config_.train.recompute);
  model_->parameters().initialize(uint64_t(config_.train.seed));
  if (config_.moe.balance == Balance::bias) model_->enable_expert_bias();
  optimizer_ = std::make_unique<ShardedOptimizer>(
      model_->parameters(), world_,
      AdamWConfig{config_.optim.beta1, config_.optim.beta2, config_.optim.eps,
                  config_.optim.weight_decay, config_.optim.decay_all});
  state_.data_fingerprint = data_->fingerprint();

  // Everything is checked before the folder is touched. Rank 0 owns it and tells the others.
  std::string checkpoint;
  if (first() && options_.mode == RunMode::resume) checkpoint = find_checkpoint();
  checkpoint = dist::broadcast(checkpoint, 0, world_.world());
  if (!checkpoint.empty()) {
    resume(checkpoint);
  } else if (!config_.run.init.empty()) {
    const std::string init = resolve_checkpoint(config_.run.init);
    for (const ConfigDifference& d : load_initial_weights(init, *model_, *optimizer_))
      note("weights of " + init + " with " + d.key + " = " + d.after + " (there " + d.before + ")");
    note("begins with the weights of " + init);
  }
  check_branches();
  if (first()) open_folder();
}

void Trainer::note(const std::string& text) {
  if (first()) progress_.note(text);
}

int64_t Trainer::steps_of(int64_t tokens) const {
  return (tokens + config_.tokens_per_step() - 1) / config_.tokens_per_step();
}

ScheduleConfig Trainer::schedule(int64_t end_tokens) const {
  return {.schedule = config_.optim.schedule,
          .lr = config_.optim.lr,
          .min_lr_ratio = config_.optim.min_lr_ratio,
          .warmup_steps = steps_of(config_.optim.warmup_tokens),
          .total_steps = steps_of(end_tokens),
          .decay_steps = steps_of(config_.optim.decay_tokens)};
}

std::vector<ModelInput> Trainer::next_batches() {
  const int64_t local = config_.train.global_batch / world_.world().size();
  const int64_t begin = state_.sequences + world_.world().rank() * local;
  std::vector<ModelInput> batches;
  double context = 0;
  for (int64_t i = 0; i < local; i += config_.train.micro_batch) {
    const Batch batch = data_->batch(begin + i, config_.train.micro_batch);
    for (size_t t = 0; t < batch.tokens.size(); ++t)
      context += double(int64_t(t) % batch.seq_len - batch.document_start[t] + 1);
    batches.push_back(to_model_input(batch));
  }
  context_sum_ += dist::all_reduce_sum(context, world_.world());
  return batches;
}

bool Trainer::must_stop() {
  // One verdict for all ranks: signals and clocks differ.
  const bool wanted = stop_requested() || time_limit_.expired();
  stop_ = dist::any(wanted, world_.world());
  return stop_ != 0;
}

void Trainer::step(const ScheduleConfig& schedule, int64_t branch_tokens) {
  const auto start = Clock::now();
  if (options_.profile != nullptr) options_.profile->begin_step();
  const double lr = learning_rate(schedule, state_.step + 1);
  const StepMetrics metrics =
      train_step(*model_, *optimizer_, world_, next_batches(),
                 {.lr = lr, .grad_clip = config_.train.grad_clip, .balance = config_.moe});
  ++state_.step;
  ++steps_here_;
  if (options_.profile != nullptr) options_.profile->end_step(state_.step);
  state_.sequences += config_.train.global_batch;
  state_.tokens += config_.tokens_per_step();
  state_.optimizer_steps = optimizer_->steps();
  state_.mean_context = context_sum_ / double(state_.tokens);
  if (metrics.skipped) {
    ++state_.skipped_steps;
    ++skipped_in_row_;
    note("step " + std::to_string(state_.step) + " skipped: loss " + std::to_string(metrics.loss) +
         ", gradient norm " + std::to_string(metrics.grad_norm) + " (" +
         std::to_string(state_.skipped_steps) + " so far)");
    SMELT_CHECK(RunError, skipped_in_row_ < options_.max_skipped_steps,
                skipped_in_row_ << " steps in a row were skipped at step " << state_.step
                                << ": loss or gradient is not finite");
  } else {
    skipped_in_row_ = 0;
  }
  log(metrics, lr, seconds_since(start), schedule.total_steps, branch_tokens);
}

void Trainer::log(const StepMetrics& metrics, double lr, double seconds, int64_t total_steps,
                  int64_t branch_tokens) {
  train_seconds_ += seconds;
  window_seconds_ += seconds;
  window_tokens_ += double(config_.tokens_per_step());
  const bool logged =
      state_.step % config_.run.log_every == 0 || state_.step == total_steps || metrics.skipped;
  if (!first()) {
    if (logged) window_seconds_ = window_tokens_ = 0;
    return;
  }
  const double rate = window_tokens_ / window_seconds_;
  const Budget budget = budget_of(config_.model, state_.mean_context);
  const double flops = rate * (budget.flops_per_token + budget.flops_head);
  double worst = 0;
  json::array loads;
  for (int64_t i = 0; i < model_->plan().executed_depth(); ++i) {
    const ExecutionStep& s = model_->plan().steps()[size_t(i)];
    const double load = model_->load().max_over_mean(i);
    worst = std::max(worst, load);
    loads.push_back({{"layer", s.layer}, {"visit", s.visit}, {"value", number_or_null(load)}});
  }
  const MemoryUse memory = memory_use();
  progress_.step({.step = state_.step,
                  .total_steps = total_steps,
                  .tokens = state_.tokens,
                  .total_tokens = total_steps * config_.tokens_per_step(),
                  .loss = metrics.loss,
                  .grad_norm = metrics.grad_norm,
                  .lr = lr,
                  .tokens_per_second = rate,
                  .flops_per_second = flops,
                  .memory_bytes = double(memory.current_bytes),
                  .aux_loss = metrics.aux_loss,
                  .load_max_over_mean = worst},
                 logged);
  if (!logged) return;
  json::object line{
      {"step", state_.step},
      {"tokens", state_.tokens},
      {"loss", number_or_null(metrics.loss)},
      {"lr", lr},
      {"grad_norm", number_or_null(metrics.grad_norm)},
      {"tokens_per_second", number_or_null(rate)},
      {"flops_per_second", number_or_null(flops)},
      {"mfu", config_.run.peak_flops > 0
                  ? json::value(flops / (config_.run.peak_flops * world_.world().size()))
                  : json::value(nullptr)},
      {"aux_loss", number_or_null(metrics.aux_loss)},
      {"z_loss", number_or_null(metrics.z_loss)},
      {"load_max_over_mean", std::move(loads)},
      {"dropped", 0},
      {"skipped_steps", state_.skipped_steps},
      {"rss_bytes", memory.current_bytes},
      {"seconds", train_seconds_}};
  if (branch_tokens > 0) line["branch_tokens"] = branch_tokens;
  log_->write(line);
  window_seconds_ = window_tokens_ = 0;
}

void Trainer::evaluate_and_log(int64_t branch_tokens) {
  if (validation_->empty()) return;
  const std::vector<DomainLoss> domains = validation_->run(*model_, world_);
  if (first()) log_validation(domains, branch_tokens);
}

void Trainer::log_validation(const std::vector<DomainLoss>& domains, int64_t branch_tokens) {
  json::object line{
      {"step", state_.step}, {"tokens", state_.tokens}, {"valid", losses_json(domains)}};
  if (branch_tokens > 0) line["branch_tokens"] = branch_tokens;
  log_->write(line);
  last_validation_ = domains;
  const DomainLoss all = overall(domains);
  char text[160];
  std::snprintf(text, sizeof text,
                "validation at step %lld: %.4f nats per token, %.4f bits per byte",
                static_cast<long long>(state_.step), all.nats_per_token(), all.bits_per_byte());
  note(text);
  log_->draw(state_.step);
}

void Trainer::save_to(const std::string& path) {
  save_checkpoint(path, *model_, *optimizer_, world_, state_, config_, tokenizer_files_);
  last_checkpoint_ = path;
  note("saved " + path);
}

void Trainer::save() {
  if (saved_step_ == state_.step) return;
  save_to(folder_.checkpoint(state_.step));
  saved_step_ = state_.step;
  if (!first() || config_.run.keep == 0) return;
  const std::vector<Checkpoint> all = folder_.list_checkpoints();
  for (size_t i = 0; i + size_t(config_.run.keep) < all.size(); ++i) fs::remove_all(all[i].path);
}

void Trainer::train_to(int64_t last_step, const ScheduleConfig& schedule, int64_t branch_tokens) {
  while (state_.step < last_step) {
    if (must_stop()) return;
    step(schedule, branch_tokens);
    if (state_.step == schedule.total_steps) break;  // finish() evaluates
    if (config_.run.eval_every > 0 && state_.step % config_.run.eval_every == 0)
      evaluate_and_log(branch_tokens);
    const bool save_now =
        config_.run.checkpoint_every > 0 && state_.step % config_.run.checkpoint_every == 0;
    if (save_now && branch_tokens == 0) save();
  }
}

void Trainer::finish(int64_t branch_tokens) {
  const std::vector<DomainLoss> domains =
      validation_->empty() ? std::vector<DomainLoss>{} : validation_->run(*model_, world_);
  if (!first()) return;
  if (!domains.empty()) log_validation(domains, branch_tokens);
  const Budget budget = budget_of(config_.model, state_.mean_context);
  json::object by_domain;
  for (const DomainLoss& d : domains) by_domain[d.domain] = number_or_null(d.nats_per_token());
  const Budget control = budget_of(control_of(config_.model), state_.mean_context);
  endpoint_ = json::object{
      {"arch", arch_name(config_.model)},
      {"cell", fs::path(config_.run.dir).filename().string()},
      {"flops_per_token", budget.flops_per_token},
      {"params_non_embedding", budget.params_non_embedding},
      {"sparsity", sparsity(budget, control)},
      {"kv_bytes_per_token", budget.kv_values_per_token * size_of(config_.train.dtype)},
      {"tokens", state_.tokens},
      {"loss",
       domains.empty() ? json::value(nullptr) : number_or_null(overall(domains).nats_per_token())},
      {"loss_by_domain", by_domain},
      {"seed", config_.train.seed},
      {"config_sha256", sha256_of_files({folder_.config_ini()}).front()}};
  // A run that was killed before its last save comes here again: one line per end point.
  std::string text;
  if (fs::exists(folder_.endpoints())) {
    for (const json::object& line : read_jsonl(folder_.endpoints()))
      if (!ends_at(line, state_.tokens)) text += json_line(line) + "\n";
  }
  write_file(folder_.endpoints(), text + json_line(endpoint_) + "\n");
}

bool Trainer::finished() {
  if (state_.step != config_.total_steps()) return state_.step > config_.total_steps();
  bool recorded = false;
  if (first() && fs::exists(folder_.endpoints())) {
    for (const json::object& line : read_jsonl(folder_.endpoints())) {
      if (!ends_at(line, state_.tokens)) continue;
      recorded = true;
      endpoint_ = line;
    }
  }
  return dist::any(recorded, world_.world());
}

bool Trainer::run_branch(int64_t end_tokens) {
  const ScheduleConfig branch = schedule(end_tokens);
  const int64_t leaves = branch.total_steps - branch.decay_steps;
  train_to(leaves, branch, 0);
  if (stop_ == 0 && branch_done(end_tokens)) return true;
  // The trunk is saved here, so that an interrupted branch starts over and the trunk goes on.
  save();
  if (stop_ != 0) return false;
  note("branch to " + human_count(double(end_tokens)) + " tokens begins at step " +
       std::to_string(leaves));
  train_to(branch.total_steps, branch, end_tokens);
  if (stop_ != 0) return false;
  finish(end_tokens);
  save_to(branch_folder(end_tokens));
  load(folder_.checkpoint(leaves));
  return true;
}

RunOutcome Trainer::outcome() const {
  const Budget budget = budget_of(config_.model, state_.mean_context);
  const double tokens = double(steps_here_ * config_.tokens_per_step());
  RunOutcome outcome{.step = state_.step,
                     .tokens = state_.tokens,
                     .skipped_steps = state_.skipped_steps,
                     .steps_here = steps_here_,
                     .seconds = train_seconds_};
  if (train_seconds_ > 0)
    outcome.flops_per_second =
        tokens / train_seconds_ * (budget.flops_per_token + budget.flops_head);
  outcome.peak_bytes = dist::all_reduce_max(memory_use().peak_bytes, world_.world());
  outcome.valid = last_validation_;
  outcome.checkpoint = last_checkpoint_;
  return outcome;
}

Trainer::End Trainer::run() {
  if (finished()) {
    note("nothing to do: the run already stands at step " + std::to_string(state_.step));
    return End::finished;
  }
  // The trunk stays at the peak rate; each branch leaves it decay_steps before its end.
  for (const int64_t end : config_.optim.branch_tokens) {
    if (!run_branch(end)) return End::stopped;
  }
  const ScheduleConfig whole = schedule(config_.train.tokens);
  const std::vector<int64_t>& branches = config_.optim.branch_tokens;
  if (!branches.empty() && steps_of(branches.back()) == whole.total_steps) return End::finished;
  train_to(whole.total_steps, whole, 0);
  save();
  if (stop_ != 0) return End::stopped;
  finish(0);
  return End::finished;
}

}  // namespace smelt
