#include "apps/prepare/train_tokenizer.h"

#include <algorithm>

#include "apps/common/progress.h"
#include "apps/prepare/clean.h"
#include "apps/prepare/prepare_job.h"
#include "tensor/error.h"

namespace smelt {
namespace {

/// Text that the inputs hold, roughly: compressed files at the usual ratio.
double expected_bytes(const std::vector<InputFile>& inputs) {
  double bytes = 0;
  for (const InputFile& input : inputs) {
    const std::string& path = input.path;
    const bool packed = path.ends_with(".gz") || path.ends_with(".zst") || path.ends_with(".zstd");
    bytes += double(std::max<int64_t>(input.bytes, 0)) * (packed ? 3.5 : 1);
  }
  return bytes;
}

}  // namespace

std::unique_ptr<Tokenizer> train_tokenizer(const std::vector<InputFile>& inputs,
                                           const TextOptions& text,
                                           const BpeTrainerOptions& options, int64_t sample_bytes,
                                           const std::function<void(const std::string&)>& report) {
  const double share = std::min(1.0, double(sample_bytes) / std::max(1.0, expected_bytes(inputs)));
  BpeTrainer trainer(options);
  for (const InputFile& input : inputs) {
    SMELT_CHECK(ConfigError, input.path != "-",
                "--train-tokenizer: standard input cannot be read twice; name files");
    RecordReader reader(input.path, text);
    for (TextRecord record; reader.next(record);) {
      // An even sample: the share of the hash that --split uses, too.
      if (share < 1 && hash_place(content_hash(record.bytes)) >= share) continue;
      try {
        if (const auto document = parse_record(std::move(record), input.path, text))
          trainer.add(*document);
      } catch (const IoError&) {
        // Told, with its place, when the text itself is prepared.
      }
    }
  }
  report("training a tokenizer of " + std::to_string(options.vocab_size) + " ids on " +
         human_bytes(double(trainer.bytes())));
  return trainer.train();
}

}  // namespace smelt
