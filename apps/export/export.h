// A model's folder written again: as a Hugging Face folder, looped or unrolled.
#pragma once

#include <cstdint>
#include <string>

#include "apps/export/options.h"
#include "moe/config.h"

namespace smelt {

struct ExportResult {
  std::string checkpoint;  // the folder that was read
  std::string model_type;  // that was written
  ModelConfig model;       // as written
  int64_t tensors = 0;
  int64_t bytes = 0;  // of all tensors
};

/// Writes options.out whole or not at all, holding one tensor at a time.
/// @throws ConfigError where the model has no such form, naming what has none and why; IoError for
/// a folder that cannot be read; RunError where it cannot be written.
ExportResult export_model(const ExportOptions& options);

}  // namespace smelt
