#include "apps/eval/evaluation.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/common/metrics.h"
#include "apps/common/model_folder.h"
#include "apps/common/run_folder.h"
#include "moe/generate.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;

/// The median of what metrics.jsonl says of a run's speed; NaN when it says nothing.
double median_speed(const std::string& run_folder) {
  const std::string path = RunFolder(run_folder).metrics();
  if (run_folder.empty() || !fs::exists(path)) return Evaluation::kNone;
  std::vector<double> speeds;
  for (const auto& line : read_jsonl(path)) {
    const auto* value = line.if_contains("tokens_per_second");
    if (value != nullptr && value->is_number()) speeds.push_back(value->to_number<double>());
  }
  if (speeds.empty()) return Evaluation::kNone;
  const auto middle = speeds.begin() + std::ptrdiff_t(speeds.size() / 2);
  std::nth_element(speeds.begin(), middle, speeds.end());
  return *middle;
}

/// The last name of a path, whether it ends in a slash or is "." or not.
std::string last_name(const std::string& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

/// config.ini of the checkpoint, if it has one.
std::optional<RunConfig> training_config(const std::string& checkpoint) {
  const std::string path = checkpoint + "/config.ini";
  if (!fs::exists(path)) return std::nullopt;
  return parse_config(read_text_file(path), path);
}

void apply_visits(const EvalOptions& options, Evaluation* result) {
  LoopConfig& loop = result->model.loop;
  result->trained_visits = loop.layers > 0 ? loop.visits : 1;
  if (!options.visits || *options.visits == result->trained_visits) return;
  SMELT_CHECK(ConfigError, loop.layers > 0,
              "--visits=" << *options.visits << ": " << result->checkpoint
                          << " has no looped span, so it must be 1");
  loop.visits = *options.visits;
}

/// Settings of the measurement: the option, else what the model was trained with.
void choose_settings(const EvalOptions& options, const std::optional<RunConfig>& training,
                     Evaluation* result) {
  result->dtype = options.dtype;
  result->document_mask = !options.no_document_mask && (!training || training->train.document_mask);
  result->seq_len = options.seq_len > 0 ? options.seq_len : training ? training->train.seq_len : 0;
  SMELT_CHECK(
      ConfigError, result->seq_len > 0 || !options.measures_loss(),
      "--seq-len=N is needed: " << result->checkpoint << " has no config.ini that tells it");
  SMELT_CHECK(ConfigError, result->seq_len <= result->model.max_seq_len,
              "--seq-len=" << result->seq_len << ": must be at most " << result->model.max_seq_len
                           << ", the longest sequence of " << result->checkpoint);
}

void measure_loss(const EvalOptions& options, const std::optional<RunConfig>& training,
                  const Tokenizer* tokenizer, int32_t eod_id, MoeTransformer& model,
                  const dist::World& world, Evaluation* result) {
  const std::vector<DataSource> sources = !options.data.empty() ? options.data
                                          : training            ? training->data.valid
                                                                : options.data;
  SMELT_CHECK(ConfigError, !sources.empty(),
              "--data=DOMAIN=PREFIX is needed: " << result->checkpoint
                                                 << " has no config.ini with [data] valid");
  const ValidationConfig config{.seq_len = result->seq_len,
                                .batch = options.batch,
                                .max_tokens = options.max_tokens,
                                .document_mask = result->document_mask};
  const Validation validation(sources, config, result->model.vocab_size, eod_id, tokenizer);
  RouterSums sums(result->model.num_experts);
  result->domains = validation.run(model, world, options.router_aux ? &sums : nullptr);
  if (options.router_aux) result->router_aux = sums.aux_loss();
  const DomainLoss all = overall(result->domains);
  if (all.targets > 0) result->mean_context = all.context / all.targets;
}

/// Prompts are continued one after the other, so that each text can be shown as it comes.
std::vector<Generation> write_texts(const EvalOptions& options, const Tokenizer& tokenizer,
                                    MoeTransformer& model, const TextSink& on_text) {
  GenerateConfig config;
  config.max_new_tokens = options.max_new_tokens;
  config.stop_id = tokenizer.eod_id();
  config.sampling = options.sampling;
  std::vector<Generation> generations;
  for (const std::string& prompt : options.prompts) {
    std::vector<int32_t> ids = tokenizer.encode(prompt);
    if (ids.empty()) ids.push_back(tokenizer.eod_id());  // the beginning of a document
    Generation generation{prompt, "", 0};
    StreamDecoder decoder(tokenizer);
    const auto show = [&](const std::string& piece) {
      generation.text += piece;
      if (on_text && !piece.empty()) on_text(piece);
    };
    if (on_text) on_text(prompt);
    const auto texts =
        generate(model, {ids}, config, [&](size_t, int32_t id) { show(decoder.push(id)); });
    show(decoder.finish());
    if (on_text) on_text("\n");
    generation.tokens = int64_t(texts.front().size());
    generations.push_back(std::move(generation));
  }
  return generations;
}

}  // namespace

bool Evaluation::visits_overridden() const {
  return model.loop.layers > 0 && model.loop.visits != trained_visits;
}

std::string run_folder_of(const std::string& checkpoint) {
  const fs::path path = fs::absolute(checkpoint).lexically_normal();
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  const std::string name = folder.filename().string(), parent = folder.parent_path().filename();
  const bool inside = (parent == "checkpoints" && name.starts_with("step-")) ||
                      (parent == "branches" && name.starts_with("tokens-"));
  return inside ? folder.parent_path().parent_path().string() : "";
}

Evaluation evaluate_checkpoint(const std::string& path, const EvalOptions& options,
                               const dist::World& world, const TextSink& on_text) {
  Evaluation result;
  result.checkpoint = resolve_checkpoint(path);
  result.run_folder = run_folder_of(result.checkpoint);
  result.name = last_name(path);
  // A checkpoint named by itself: the run's name tells more than the step alone.
  if (result.checkpoint == path && !result.run_folder.empty())
    result.name = last_name(result.run_folder) + "/" + result.name;
  const ModelFolder folder(result.checkpoint);
  const ModelJson& json = folder.json();
  result.model = json.config;
  apply_visits(options, &result);
  folder.check(result.model);  // before anything of the model's size is allocated
  const std::optional<RunConfig> training = training_config(result.checkpoint);
  choose_settings(options, training, &result);
  result.mean_context = double(result.seq_len + 1) / 2;
  if (fs::exists(result.checkpoint + "/trainer_state.json")) {
    const TrainerState state = read_trainer_state(result.checkpoint);
    result.step = state.step;
    result.tokens = state.tokens;
    if (state.mean_context > 0) result.mean_context = state.mean_context;
  }
  std::unique_ptr<Tokenizer> tokenizer;
  if (fs::exists(result.checkpoint + "/tokenizer.json") || !options.prompts.empty()) {
    tokenizer = load_tokenizer(result.checkpoint);
    SMELT_CHECK(ConfigError, tokenizer->vocab_size() <= result.model.vocab_size,
                result.checkpoint << ": tokenizer.json has " << tokenizer->vocab_size()
                                  << " ids, more than the model's vocabulary of "
                                  << result.model.vocab_size);
  }

  MoeTransformer model(result.model, options.dtype, world);
  load_model(result.checkpoint, model);
  if (options.measures_loss()) {
    const int32_t eod = tokenizer ? tokenizer->eod_id() : json.eod_id;
    measure_loss(options, training, tokenizer.get(), eod, model, world, &result);
  }
  result.budget = budget_of(result.model, result.mean_context);
  result.tokens_per_second = median_speed(result.run_folder);
  if (!options.prompts.empty())
    result.generations = write_texts(options, *tokenizer, model, on_text);
  return result;
}

}  // namespace smelt
