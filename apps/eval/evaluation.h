// One checkpoint: opening it, scoring it, and letting it write.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/checkpoint.h"
#include "apps/common/tokenizer/tokenizer.h"
#include "apps/common/validation.h"
#include "apps/eval/options.h"
#include "moe/budget.h"

namespace smelt {

/// A prompt and its continuation.
struct Generation {
  std::string prompt, text;
  int64_t tokens = 0;  // new ones
};

/// What was measured, with everything that the numbers depend on.
struct Evaluation {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::string name;        // for tables: RUN, or RUN/step-N when the checkpoint itself was named
  std::string checkpoint;  // the folder that was read
  std::string run_folder;  // the run that it belongs to; empty if none
  std::optional<int64_t> step, tokens;  // of training; unset without trainer_state.json
  ModelConfig model;                    // as evaluated
  int64_t trained_visits = 1;           // differs from the plan's visits only by --visits
  DType dtype = DType::f32;
  bool document_mask = true;
  int64_t seq_len = 0;
  double mean_context = 0;  // keys per query, of the scored data if there is any
  Budget budget;            // at mean_context
  std::vector<DomainLoss> domains;
  std::optional<double> router_aux;  // with --router-aux: see RouterSums
  double tokens_per_second = kNone;  // of training: median of metrics.jsonl
  std::vector<Generation> generations;

  bool visits_overridden() const;
};

/// Called with pieces of text as they come: a prompt, then its continuation, then a line end.
using TextSink = std::function<void(const std::string&)>;

/// Opens, scores and continues the prompts. All ranks of `world` take part and get the same result.
/// @param path     what the user named: a checkpoint or run folder
/// @param on_text  may be empty
/// @throws IoError, ConfigError naming file or option, value and what is allowed
Evaluation evaluate_checkpoint(const std::string& path, const EvalOptions& options,
                               const dist::World& world, const TextSink& on_text = {});

/// The run folder that a checkpoint folder belongs to (RUN/checkpoints/step-N or
/// RUN/branches/tokens-N), or empty.
std::string run_folder_of(const std::string& checkpoint);

}  // namespace smelt
