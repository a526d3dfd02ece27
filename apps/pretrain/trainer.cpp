#include "apps/pretrain/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "apps/common/atomic_folder.h"
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

/// Settings that change where and how a run is executed, not what it computes.
bool free_to_change(const std::string& key) {
  return key.starts_with("run.") || key.starts_with("dist.") || key == "train.micro_batch" ||
         key == "train.recompute" || key.starts_with("data.valid");
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
      time_limit_(double(config.run.time_limit)) {
  validate_data(config_);
  int32_t eod_id = -1;
  if (const std::string path = tokenizer_path(config_); !path.empty()) {
    tokenizer_ = load_tokenizer(path);
    tokenizer_json_ = read_text_file(fs::is_directory(path) ? path + "/tokenizer.json" : path);
    eod_id = tokenizer_->eod_id();
    SMELT_CHECK(ConfigError, tokenizer_->vocab_size() <= config_.model.vocab_size,
                "model.vocab_size = " << config_.model.vocab_size << " is below the tokenizer's "
                                      << tokenizer_->vocab_size() << " (" << path << ")");
  }
  SMELT_CHECK(ConfigError, eod_id >= 0 || !config_.train.document_mask,
              "data.tokenizer is needed for train.document_mask: it tells the end-of-document id");

  DatasetConfig data{.domains = {},
                     .seq_len = config_.train.seq_len,
                     .vocab_size = config_.model.vocab_size,
                     .eod_id = eod_id,
                     .document_mask = config_.train.document_mask,
                     .seed = uint64_t(config_.train.seed)};
  for (const DataSource& source : config_.data.train)
    data.domains.push_back({source.domain, source.prefix, source.weight});
  data_ = std::make_unique<BlendedDataset>(data);
  validation_ = std::make_unique<Validation>(
      config_.data.valid,
      ValidationConfig{
          .seq_len = config_.train.seq_len,
          .batch = config_.train.micro_batch,
          .max_tokens = config_.data.valid.empty()
                            ? 0
                            : config_.run.eval_tokens / int64_t(config_.data.valid.size()),
          .document_mask = config_.train.document_mask},
      config_.model.vocab_size, eod_id, tokenizer_.get());

  model_ = std::make_unique<MoeTransformer>(config_.model, config_.train.dtype, world_);
  model_->set_recompute(config_.train.recompute);
  model_->parameters().initialize(uint64_t(config_.train.seed));
  if (config_.moe.balance == Balance::bias) model_->enable_expert_bias();
  optimizer_ = std::make_unique<ShardedOptimizer>(
      model_->parameters(), world_,
      AdamWConfig{config_.optim.beta1, config_.optim.beta2, config_.optim.eps,
                  config_.optim.weight_decay});
  state_.data_fingerprint = data_->fingerprint();

  // Rank 0 owns the folder; the others learn where to resume from.
  std::string resume_path;
  if (first()) {
    const OpenedRun opened = open_run_folder(config_, options_.mode);
    remove_stale(opened.folder.checkpoints());
    if (options_.mode == RunMode::resume) {
      for (const Checkpoint& c : opened.folder.list_checkpoints()) {
        if (is_complete(c.path)) {
          resume_path = c.path;
        } else {
          note("passing over a damaged checkpoint: " + why_incomplete(c.path));
        }
      }
    }
  }
  folder_.emplace(config_.run.dir);
  resume_path = dist::broadcast(resume_path, 0, world_.world());
  if (!resume_path.empty()) resume({0, resume_path});
  if (first()) {
    const int64_t dropped = truncate_metrics(folder_->metrics(), state_.step);
    if (dropped > 0)
      note(std::to_string(dropped) + " logged steps after step " + std::to_string(state_.step) +
           " will run again");
    metrics_.emplace(folder_->metrics());
    for (const DomainInfo& d : data_->domains()) {
      note("data " + d.name + ": " + human_count(double(d.tokens)) + " tokens, " +
           std::to_string(d.windows) + " windows, share " +
           std::to_string(int(std::lround(100 * d.share))) + " %, " +
           std::to_string(d.dropped_tokens) + " tokens at the end unused");
    }
  }
}

void Trainer::note(const std::string& text) {
  if (first()) progress_.note(text);
}

void Trainer::resume(const Checkpoint& checkpoint) {
  check_unchanged(checkpoint.path + "/config.ini");
  const std::string fingerprint = state_.data_fingerprint;
  state_ = load_checkpoint(checkpoint.path, *model_, *optimizer_, world_, config_);
  SMELT_CHECK(
      ConfigError, state_.data_fingerprint == fingerprint || options_.accept_changes,
      checkpoint.path << ": the training data have changed since this checkpoint was written; give "
                      << "--accept-changes to go on with other data");
  state_.data_fingerprint = fingerprint;
  context_sum_ = context_count_ = 0;
  saved_step_ = state_.step;
  note("resumed from " + checkpoint.path + " at step " + std::to_string(state_.step));
}

void Trainer::check_unchanged(const std::string& checkpoint_config) const {
  const RunConfig before = parse_config(read_text_file(checkpoint_config), checkpoint_config);
  for (const ConfigDifference& d : config_differences(before, config_)) {
    if (free_to_change(d.key)) continue;
    SMELT_CHECK(ConfigError, options_.accept_changes,
                d.key << " = " << d.after << " differs from " << d.before << " in "
                      << checkpoint_config
                      << "; give --accept-changes to go on with the new value");
    if (first())
      std::fprintf(stderr, "going on with %s = %s (was %s)\n", d.key.c_str(), d.after.c_str(),
                   d.before.c_str());
  }
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
  for (int64_t i = 0; i < local; i += config_.train.micro_batch) {
    const Batch batch = data_->batch(begin + i, config_.train.micro_batch);
    for (size_t t = 0; t < batch.tokens.size(); ++t) {
      context_sum_ += double(int64_t(t) % batch.seq_len - batch.document_start[t] + 1);
    }
    context_count_ += double(batch.tokens.size());
    batches.push_back(to_model_input(batch));
  }
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
  const double lr = learning_rate(schedule, state_.step + 1);
  const StepMetrics metrics =
      train_step(*model_, *optimizer_, world_, next_batches(),
                 {.lr = lr, .grad_clip = config_.train.grad_clip, .balance = config_.moe});
  ++state_.step;
  state_.sequences += config_.train.global_batch;
  state_.tokens += config_.tokens_per_step();
  state_.optimizer_steps = optimizer_->steps();
  state_.mean_context = context_count_ > 0 ? context_sum_ / context_count_ : 0;
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
  json::object line{{"step", state_.step},
                    {"tokens", state_.tokens},
                    {"loss", number_or_null(metrics.loss)},
                    {"lr", lr},
                    {"grad_norm", number_or_null(metrics.grad_norm)},
                    {"tokens_per_second", number_or_null(rate)},
                    {"flops_per_second", number_or_null(flops)},
                    {"mfu", nullptr},  // the peak of a CPU is not known to the program
                    {"aux_loss", number_or_null(metrics.aux_loss)},
                    {"z_loss", number_or_null(metrics.z_loss)},
                    {"load_max_over_mean", std::move(loads)},
                    {"dropped", 0},
                    {"skipped_steps", state_.skipped_steps},
                    {"rss_bytes", memory.current_bytes},
                    {"seconds", train_seconds_}};
  if (branch_tokens > 0) line["branch_tokens"] = branch_tokens;
  metrics_->write(line);
  window_seconds_ = window_tokens_ = 0;
}

void Trainer::evaluate_and_log(int64_t branch_tokens) {
  if (validation_->empty()) return;
  const std::vector<DomainLoss> domains = validation_->run(*model_, world_);
  if (!first()) return;
  json::object line{
      {"step", state_.step}, {"tokens", state_.tokens}, {"valid", losses_json(domains)}};
  if (branch_tokens > 0) line["branch_tokens"] = branch_tokens;
  metrics_->write(line);
  const DomainLoss all = overall(domains);
  char text[160];
  std::snprintf(text, sizeof text,
                "validation at step %lld: %.4f nats per token, %.4f bits per byte",
                static_cast<long long>(state_.step), all.nats_per_token(), all.bits_per_byte());
  note(text);
}

void Trainer::save() {
  if (saved_step_ == state_.step) return;
  const std::string path = folder_->checkpoint(state_.step);
  save_checkpoint(path, *model_, *optimizer_, world_, state_, config_, tokenizer_json_,
                  tokenizer_ ? tokenizer_->eod_id() : -1);
  saved_step_ = state_.step;
  note("saved " + path);
  if (!first() || config_.run.keep == 0) return;
  const std::vector<Checkpoint> all = folder_->list_checkpoints();
  for (size_t i = 0; i + size_t(config_.run.keep) < all.size(); ++i) fs::remove_all(all[i].path);
}

void Trainer::train_to(int64_t last_step, const ScheduleConfig& schedule, int64_t branch_tokens) {
  while (state_.step < last_step) {
    if (must_stop()) return;
    step(schedule, branch_tokens);
    if (state_.step == last_step) break;
    if (config_.run.eval_every > 0 && state_.step % config_.run.eval_every == 0)
      evaluate_and_log(branch_tokens);
    const bool save_now =
        config_.run.checkpoint_every > 0 && state_.step % config_.run.checkpoint_every == 0;
    if (save_now && branch_tokens == 0) save();
  }
}

void Trainer::finish_branch(int64_t end_tokens) {
  const std::vector<DomainLoss> domains =
      validation_->empty() ? std::vector<DomainLoss>{} : validation_->run(*model_, world_);
  if (!first()) return;
  const Budget budget = budget_of(config_.model, state_.mean_context);
  json::object by_domain;
  for (const DomainLoss& d : domains) by_domain[d.domain] = number_or_null(d.nats_per_token());
  const bool looped = config_.model.loop.layers > 0 && config_.model.loop.visits > 1;
  endpoint_ = json::object{
      {"arch", looped ? "smelt" : "baseline"},
      {"cell", fs::path(config_.run.dir).filename().string()},
      {"flops_per_token", budget.flops_per_token},
      {"params_non_embedding", budget.params_non_embedding},
      {"sparsity", nullptr},  // needs the fully active control of the scale
      {"kv_bytes_per_token", budget.kv_values_per_token * size_of(config_.train.dtype)},
      {"tokens", end_tokens},
      {"loss",
       domains.empty() ? json::value(nullptr) : number_or_null(overall(domains).nats_per_token())},
      {"loss_by_domain", by_domain},
      {"seed", config_.train.seed}};
  append_jsonl(folder_->endpoints(), endpoint_.as_object());
  if (!domains.empty()) {
    metrics_->write(
        {{"step", state_.step}, {"tokens", state_.tokens}, {"valid", losses_json(domains)}});
    const DomainLoss all = overall(domains);
    char text[160];
    std::snprintf(
        text, sizeof text, "end of %s tokens: validation %.4f nats per token, %.4f bits per byte",
        human_count(double(end_tokens)).c_str(), all.nats_per_token(), all.bits_per_byte());
    note(text);
  }
}

Trainer::End Trainer::run() {
  const bool branches =
      config_.optim.schedule == Schedule::wsd && !config_.optim.branch_tokens.empty();
  if (!branches) {
    const ScheduleConfig whole = schedule(config_.train.tokens);
    if (state_.step >= whole.total_steps) {
      note("nothing to do: the run already stands at step " + std::to_string(state_.step));
      return End::finished;
    }
    train_to(whole.total_steps, whole, 0);
    save();
    if (stop_ != 0) return End::stopped;
    finish_branch(state_.tokens);
    return End::finished;
  }

  // The trunk stays at the peak rate; each branch leaves it decay_steps before its end. The trunk
  // is saved there, so that an interrupted branch starts over and the trunk goes on after it.
  for (size_t i = 0; i < config_.optim.branch_tokens.size(); ++i) {
    const int64_t end = config_.optim.branch_tokens[i];
    const ScheduleConfig branch = schedule(end);
    const std::string branch_folder = folder_->path() + "/branches/tokens-" + std::to_string(end);
    const bool done = dist::any(first() && is_complete(branch_folder), world_.world());
    const int64_t leaves = branch.total_steps - branch.decay_steps;
    train_to(leaves, branch, 0);
    save();
    if (stop_ != 0) return End::stopped;
    if (done) continue;
    note("branch to " + human_count(double(end)) + " tokens begins at step " +
         std::to_string(leaves));
    train_to(branch.total_steps, branch, end);
    if (stop_ != 0) return End::stopped;
    finish_branch(end);
    save_checkpoint(branch_folder, *model_, *optimizer_, world_, state_, config_, tokenizer_json_,
                    tokenizer_ ? tokenizer_->eod_id() : -1);
    note("saved " + branch_folder);
    resume({leaves, folder_->checkpoint(leaves)});
  }
  return End::finished;
}

}  // namespace smelt
