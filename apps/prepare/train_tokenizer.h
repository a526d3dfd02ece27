// A tokenizer trained on the text that is to be prepared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/text_source.h"
#include "apps/common/tokenizer/trainer.h"
#include "apps/prepare/inputs.h"

namespace smelt {

/// Trains on documents of `inputs`, about `sample_bytes` of text in all: where there is more, on an
/// even sample chosen by the documents' hashes, so the result depends on the text alone. Unreadable
/// records are passed over.
/// @param report  is told what was taken
/// @throws ConfigError for standard input, which cannot be read twice; IoError.
std::unique_ptr<Tokenizer> train_tokenizer(const std::vector<InputFile>& inputs,
                                           const TextOptions& text,
                                           const BpeTrainerOptions& options, int64_t sample_bytes,
                                           const std::function<void(const std::string&)>& report);

}  // namespace smelt
