// Command line of smelt-eval.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/cli.h"
#include "apps/common/config.h"
#include "nn/sampling.h"

namespace smelt {

struct EvalOptions {
  std::vector<std::string> checkpoints;  // as given: checkpoint or run folders
  std::vector<DataSource> data;          // empty: what each checkpoint's config.ini names
  int64_t seq_len = 0;                   // 0: that of config.ini
  int64_t batch = 8;                     // sequences of one pass of one rank
  int64_t max_tokens = 0;                // per domain; 0: all
  bool no_document_mask = false;
  bool router_aux = false;
  std::optional<int64_t> visits;  // instead of the visits that the checkpoint was trained with
  DType dtype = DType::f32;
  int64_t expert_parallel = 1;
  std::vector<std::string> prompts;
  int64_t max_new_tokens = 0;
  SamplingConfig sampling;
  std::vector<std::string> figures;
  bool json = false;

  /// Prompts alone ask for text alone; validation losses are measured without prompts, or when
  /// --data names what to measure them on.
  bool measures_loss() const { return prompts.empty() || !data.empty(); }
};

/// The options with their defaults, units and help texts.
OptionTable eval_option_table();
/// @throws ConfigError naming the option, its value and what is allowed.
EvalOptions eval_options(const Arguments& arguments);

}  // namespace smelt
