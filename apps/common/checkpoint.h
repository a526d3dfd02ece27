// Checkpoint folders: a Hugging Face folder (config.json, model*.safetensors, tokenizer.json) plus
// the trainer's state (trainer_state.json, optimizer*.safetensors, config.ini). Tensors carry
// global names and their bytes do not depend on the number of ranks that wrote them; any layout can
// load them.
#pragma once

#include <cstdint>
#include <string>

#include "apps/common/config.h"
#include "moe/model.h"
#include "moe/sharded_optimizer.h"

namespace smelt {

/// Where a run stands, in units that do not depend on ranks or micro-batches.
struct TrainerState {
  int64_t step = 0;             // optimizer steps tried, skipped ones included
  int64_t optimizer_steps = 0;  // AdamW's counter
  int64_t sequences = 0;        // sequences consumed: the position in the data
  int64_t tokens = 0;           // positions consumed
  int64_t skipped_steps = 0;
  double mean_context = 0;  // mean keys per query of the data seen
  std::string data_fingerprint;
};

/// What a checkpoint says of the tokenizer: the texts of tokenizer.json and tokenizer_config.json
/// (empty: none), and the id that ends a document (-1: none).
struct TokenizerFiles {
  std::string json, config;
  int32_t eod_id = -1;
};

/// Writes the folder `path` whole or not at all. Rank 0 writes; the others send it their experts.
/// Collective.
/// @throws RunError when the disk is full or a value of the model is not finite.
void save_checkpoint(const std::string& path, MoeTransformer& model,
                     const ShardedOptimizer& optimizer, const dist::World& world,
                     const TrainerState& state, const RunConfig& config,
                     const TokenizerFiles& tokenizer);

/// Fills the model's parameters (and selection biases) from a folder, a checkpoint or a Hugging
/// Face folder of a family that model_json.h names; no optimizer needed. Each rank reads only what
/// it holds, straight into its place.
/// @throws IoError naming the file and the tensor that is missing, unknown or of another shape.
void load_model(const std::string& path, MoeTransformer& model);

/// The same for a new run: fills the masters. Returns settings of [model] and [loop] in which the
/// folder's model differs without its tensors differing.
/// @throws ConfigError naming the first setting of which the tensors' number or sizes depend
std::vector<ConfigDifference> load_initial_weights(const std::string& path, MoeTransformer& model,
                                                   ShardedOptimizer& optimizer);

/// Fills masters, moments and biases, and returns the trainer's state.
/// @throws IoError as load_model, ConfigError when the checkpoint was written with other betas or
/// eps.
TrainerState load_checkpoint(const std::string& path, MoeTransformer& model,
                             ShardedOptimizer& optimizer, const RunConfig& config);

/// The trainer state alone. @throws IoError
TrainerState read_trainer_state(const std::string& path);

/// A checkpoint folder from what a user names: the folder itself, or a run folder, whose latest
/// whole checkpoint is taken. @throws IoError naming what is missing.
std::string resolve_checkpoint(const std::string& path);

}  // namespace smelt
