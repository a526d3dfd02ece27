#include "apps/common/validation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "dist/collectives.h"

namespace smelt {

double DomainLoss::bits_per_byte() const {
  return bytes > 0 ? nats / std::numbers::ln2 / bytes : std::numeric_limits<double>::quiet_NaN();
}

DomainLoss overall(const std::vector<DomainLoss>& domains) {
  DomainLoss total;
  total.domain = "overall";
  for (const DomainLoss& d : domains) {
    total.nats += d.nats;
    total.targets += d.targets;
    total.bytes += d.bytes;
    total.context += d.context;
  }
  return total;
}

ModelInput to_model_input(const Batch& batch) {
  return {Tensor::from(batch.tokens), Tensor::from(batch.targets),
          SequenceLayout::from_document_starts(batch.batch, batch.seq_len, batch.document_start)};
}

Validation::Validation(const std::vector<DataSource>& sources, const ValidationConfig& config,
                       int64_t vocab_size, int32_t eod_id, const Tokenizer* tokenizer)
    : config_(config) {
  for (const DataSource& source : sources) {
    datasets_.push_back(
        std::make_unique<EvalDataset>(EvalDataset::Config{.name = source.domain,
                                                          .prefix = source.prefix,
                                                          .seq_len = config.seq_len,
                                                          .vocab_size = vocab_size,
                                                          .eod_id = eod_id,
                                                          .document_mask = config.document_mask}));
  }
  if (tokenizer != nullptr) {
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
      id_bytes_.push_back(tokenizer->id_bytes(id));
  }
}

std::vector<DomainLoss> Validation::run(MoeTransformer& model, const dist::World& world,
                                        RouterSums* sums) const {
  std::vector<DomainLoss> results;
  const int64_t ranks = world.world().size(), rank = world.world().rank();
  for (const auto& dataset : datasets_) {
    int64_t sequences = dataset->sequences();
    if (config_.max_tokens > 0) {
      sequences = std::min(sequences, std::max<int64_t>(1, config_.max_tokens / config_.seq_len));
    }
    const int64_t per_pass = config_.batch * ranks;
    const Tensor scores = Tensor::zeros({4}, {DType::f64, {}});
    double* s = scores.data<double>();
    for (int64_t first = 0; first < sequences; first += per_pass) {
      const int64_t begin = std::min(first + rank * config_.batch, sequences);
      const int64_t count = std::min(config_.batch, sequences - begin);
      // A rank without work still joins the token exchange, with one token that nobody scores.
      const Batch batch =
          count > 0 ? dataset->batch(begin, count) : Batch{1, 1, {0}, {kNoTarget}, {0}};
      const std::vector<double> losses =
          model.token_losses(to_model_input(batch), count > 0 ? sums : nullptr)
              .to(DType::f64)
              .to_vector<double>();
      for (size_t t = 0; t < losses.size(); ++t) {
        const int32_t target = batch.targets[t];
        if (target == kNoTarget) continue;
        s[0] += losses[t];
        s[1] += 1;
        if (size_t(target) < id_bytes_.size()) s[2] += double(id_bytes_[size_t(target)]);
        s[3] += double(int64_t(t) % batch.seq_len - batch.document_start[t] + 1);
      }
    }
    dist::all_reduce_sum_(scores, world.world());
    results.push_back({dataset->name(), s[0], s[1], s[2], s[3]});
  }
  if (sums != nullptr) sums->reduce(world.world());
  return results;
}

}  // namespace smelt
