// Combinations of values that cannot work. Ranges of single values stand in config_schema.cpp.
#include <cmath>
#include <optional>
#include <set>
#include <sstream>

#include "apps/common/config.h"
#include "apps/common/config_schema.h"
#include "tensor/device.h"

namespace smelt {
namespace {

struct Fault {
  std::vector<std::string> keys;  // whose values clash
  std::string text;
};

// Collects the first fault; later checks may rely on earlier ones.
class Checker {
 public:
  explicit Checker(const RunConfig& config) : config_(config) {}

  // The text names the keys with their values and then says what is wrong: rule.
  void require(bool ok, std::vector<std::string> keys, const std::string& rule) {
    if (ok || fault_) return;
    std::string values;
    for (const std::string& name : keys) {
      const ConfigKey* key = find_config_key(name);
      values += (values.empty() ? "" : ", ") + ("[" + key->section + "] " + key->key + " = ") +
                key->get(config_);
    }
    fault_ = Fault{std::move(keys), values + ": " + rule};
  }
  const std::optional<Fault>& fault() const { return fault_; }

 private:
  const RunConfig& config_;
  std::optional<Fault> fault_;
};

std::string text(int64_t value) { return std::to_string(value); }

void check_model(const RunConfig& config, Checker* check) {
  const ModelConfig& m = config.model;
  check->require(m.num_heads % m.num_kv_heads == 0, {"model.num_heads", "model.num_kv_heads"},
                 "num_heads must be a multiple of num_kv_heads");
  check->require(m.head_dim % 2 == 0, {"model.head_dim"},
                 "must be even, rotary positions turn pairs of features");
  check->require(m.top_k <= m.num_experts, {"model.top_k", "model.num_experts"},
                 "top_k must be at most num_experts");
  check->require(m.top_k > 1 || !m.norm_topk || m.num_experts == 1,
                 {"model.top_k", "model.norm_topk"},
                 "the only chosen expert's weight would always be 1 and the router would not "
                 "learn from the loss; set norm_topk = false or top_k of at least 2");
  // Sixteen bytes of a parameter (weight, gradient, two moments) must stay countable.
  const double layer =
      3.0 * double(m.hidden_size) *
          (double(m.num_experts) * double(m.expert_hidden_size) +
           double(m.shared_expert_hidden_size)) +
      2.0 * double(m.hidden_size) * double(m.head_dim) * double(m.num_heads + m.num_kv_heads);
  const double parameters =
      double(m.num_layers) * layer + 2.0 * double(m.vocab_size) * double(m.hidden_size);
  check->require(
      parameters < 0x1p58,
      {"model.num_layers", "model.num_experts", "model.hidden_size", "model.expert_hidden_size"},
      "the model would have " + number_text(std::round(parameters / 1e15) * 1e15) +
          " parameters, more than 2^58");
}

void check_loop(const RunConfig& config, Checker* check) {
  const LoopConfig& loop = config.model.loop;
  const int64_t layers = config.model.num_layers;
  check->require(loop.layers <= layers, {"loop.layers", "model.num_layers"},
                 "the span must lie inside the stack");
  check->require(loop.layers == 0 || loop.start < 0 || loop.start + loop.layers <= layers,
                 {"loop.start", "loop.layers", "model.num_layers"},
                 "the span must lie inside the stack: start + layers at most num_layers");
  check->require(loop.layers > 0 || loop.visits == 1, {"loop.visits", "loop.layers"},
                 "no layer is looped; set layers or visits = 1");
  check->require(layers + (loop.visits - 1) * loop.layers <= (1 << 20),
                 {"loop.visits", "loop.layers", "model.num_layers"},
                 "more than 1048576 layers would be executed");
}

void check_balance(const RunConfig& config, Checker* check) {
  check->require(config.moe.balance != Balance::aux || config.moe.aux_loss_coef > 0,
                 {"moe.balance", "moe.aux_loss_coef"},
                 "a balancing loss needs a weight above 0; without one set balance = none");
  check->require(config.moe.balance != Balance::bias || config.moe.bias_update_rate > 0,
                 {"moe.balance", "moe.bias_update_rate"},
                 "a selection bias needs an update rate above 0; without one set balance = none");
}

void check_layout(const RunConfig& config, int world_size, Checker* check) {
  const int64_t group = config.dist.expert_parallel;
  check->require(config.model.num_experts % group == 0,
                 {"model.num_experts", "dist.expert_parallel"},
                 "num_experts must be a multiple of expert_parallel");
  check->require(world_size % group == 0, {"dist.expert_parallel"},
                 "must divide the number of ranks, " + text(world_size));
}

void check_batches(const RunConfig& config, int world_size, Checker* check) {
  const TrainConfig& train = config.train;
  check->require(train.seq_len <= config.model.max_seq_len, {"train.seq_len", "model.max_seq_len"},
                 "seq_len must be at most max_seq_len");
  const int64_t pass = world_size * train.micro_batch;
  check->require(train.global_batch % pass == 0, {"train.global_batch", "train.micro_batch"},
                 "global_batch must be a multiple of ranks x micro_batch = " + text(world_size) +
                     " x " + text(train.micro_batch) + " = " + text(pass));
  check->require(
      double(train.micro_batch) * double(train.seq_len) * double(config.model.top_k) < 0x1p31,
      {"train.micro_batch", "train.seq_len", "model.top_k"},
      "one pass would route 2^31 rows or more; use a smaller micro_batch");
}

void check_schedule(const RunConfig& config, Checker* check) {
  const OptimConfig& optim = config.optim;
  const int64_t tokens = config.train.tokens;
  check->require(optim.warmup_tokens <= tokens, {"optim.warmup_tokens", "train.tokens"},
                 "the warm-up must end within the run");
  const bool wsd = optim.schedule == Schedule::wsd;
  check->require(!wsd || optim.decay_tokens <= tokens - optim.warmup_tokens,
                 {"optim.warmup_tokens", "optim.decay_tokens", "train.tokens"},
                 "warm-up and decay together must fit into the run");
  check->require(wsd || optim.branch_tokens.empty(), {"optim.schedule", "optim.branch_tokens"},
                 "decay branches need schedule = wsd");
  int64_t before = 0;
  for (const int64_t branch : optim.branch_tokens) {
    check->require(branch > before, {"optim.branch_tokens"}, "must be ascending");
    before = branch;
  }
  if (optim.branch_tokens.empty()) return;
  check->require(optim.branch_tokens.front() >= config.tokens_per_step(),
                 {"optim.branch_tokens", "train.global_batch", "train.seq_len"},
                 "the first branch must last at least one step, " + text(config.tokens_per_step()) +
                     " tokens");
  check->require(optim.branch_tokens.back() <= tokens, {"optim.branch_tokens", "train.tokens"},
                 "branches must end within the run");
  check->require(optim.decay_tokens <= optim.branch_tokens.front() - optim.warmup_tokens,
                 {"optim.branch_tokens", "optim.warmup_tokens", "optim.decay_tokens"},
                 "the first branch must hold warm-up and decay");
}

std::optional<Fault> find_fault(const RunConfig& config, int world_size) {
  SMELT_CHECK(ConfigError, world_size >= 1,
              "number of ranks = " << world_size << ": must be at least 1");
  // Values that did not pass through a file or the command line keep to the same ranges.
  for (const ConfigKey& key : config_schema()) {
    RunConfig scratch = config;
    const std::string value = key.get(config);
    if (!key.set(scratch, value))
      return Fault{{key.name()},
                   "[" + key.section + "] " + key.key + " = " + value + ": must be " + key.allowed};
  }
  Checker check(config);
  check_model(config, &check);
  check_loop(config, &check);
  check_balance(config, &check);
  check_layout(config, world_size, &check);
  check_batches(config, world_size, &check);
  check_schedule(config, &check);
  check.require(config.run.device == DeviceKind::cpu || built_with_cuda(), {"run.device"},
                "this build has no CUDA kernels; build with CMake option SMELT_CUDA, or use cpu");
  return check.fault();
}

}  // namespace

void validate(const RunConfig& config, int world_size) {
  if (const auto fault = find_fault(config, world_size)) throw ConfigError(fault->text);
}

void validate(const LoadedConfig& loaded, int world_size) {
  const auto fault = find_fault(loaded.config, world_size);
  if (!fault) return;
  std::string places;
  for (const std::string& name : fault->keys) {
    const auto origin = loaded.origins.find(name);
    if (origin == loaded.origins.end()) continue;
    places += (places.empty() ? " (" : ", ") + name.substr(name.find('.') + 1) + ": " +
              origin->second.text();
  }
  throw ConfigError(fault->text + places + (places.empty() ? "" : ")"));
}

void validate_data(const RunConfig& config) {
  SMELT_CHECK(ConfigError, !config.data.train.empty(),
              "[data] train is empty: must be domain=prefix[:weight], ... (token files made by "
              "smelt-prepare)");
  std::set<std::string> domains;
  for (const DataSource& source : config.data.valid)
    SMELT_CHECK(
        ConfigError, domains.insert(source.domain).second,
        "[data] valid names domain " << source.domain << " twice: its loss is reported by domain");
}

}  // namespace smelt
