// Validation loss per domain, with the training's document mask.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/common/config.h"
#include "apps/common/dataset.h"
#include "apps/common/tokenizer/tokenizer.h"
#include "moe/model.h"

namespace smelt {

/// Sums over the target tokens of one domain.
struct DomainLoss {
  std::string domain;
  double nats = 0;
  double targets = 0;
  double bytes = 0;    // text bytes of the targets; 0 without a tokenizer
  double context = 0;  // keys seen, summed over positions with a target
  double nats_per_token() const { return targets > 0 ? nats / targets : 0; }
  /// Bits per byte of text; NaN when the bytes are not known.
  double bits_per_byte() const;
};

/// The sum of all domains, named "overall".
DomainLoss overall(const std::vector<DomainLoss>& domains);

struct ValidationConfig {
  int64_t seq_len = 0;
  int64_t batch = 4;       // sequences of one pass of one rank
  int64_t max_tokens = 0;  // per domain, whole sequences; 0: all
  bool document_mask = true;
};

/// A batch as the model takes it.
ModelInput to_model_input(const Batch& batch);

class Validation {
 public:
  /// Opens the token files. @throws ConfigError, IoError as EvalDataset does.
  /// @param tokenizer  for bytes per token and the end-of-document id; may be null (no bytes then)
  Validation(const std::vector<DataSource>& sources, const ValidationConfig& config,
             int64_t vocab_size, int32_t eod_id, const Tokenizer* tokenizer);

  bool empty() const { return datasets_.empty(); }
  /// Scores every sequence once, spread over the ranks; the same result on every rank, whatever
  /// their number (up to rounding). Collective.
  /// @param sums  if given, collects the routing of all scored sequences on all ranks
  std::vector<DomainLoss> run(MoeTransformer& model, const dist::World& world,
                              RouterSums* sums = nullptr) const;

 private:
  ValidationConfig config_;
  std::vector<std::unique_ptr<EvalDataset>> datasets_;
  std::vector<int64_t> id_bytes_;
};

}  // namespace smelt
