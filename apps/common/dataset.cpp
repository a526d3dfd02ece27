#include "apps/common/dataset.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <sstream>

#include <boost/uuid/name_generator_sha1.hpp>
#include <boost/uuid/uuid_io.hpp>

#include "tensor/error.h"
#include "tensor/rng.h"

namespace smelt {
namespace {

struct WindowRule {
  int32_t eod_id;
  bool document_mask;
};

// Fills one sequence that starts at token `first`; needs tokens.size() + 1 tokens from there.
void cut_window(const TokenFile& file, int64_t first, WindowRule rule, std::span<int32_t> tokens,
                std::span<int32_t> targets, std::span<int32_t> document_start) {
  const size_t length = tokens.size();
  file.read(first, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  targets[length - 1] = file.token(first + static_cast<int64_t>(length));
  int32_t start = 0;
  for (size_t t = 0; t < length; ++t) {
    document_start[t] = start;
    if (rule.document_mask && tokens[t] == rule.eod_id) {
      targets[t] = kNoTarget;
      start = static_cast<int32_t>(t) + 1;
    }
  }
}

Batch make_batch(int64_t count, int64_t seq_len) {
  Batch batch{
      .batch = count, .seq_len = seq_len, .tokens = {}, .targets = {}, .document_start = {}};
  const auto size = static_cast<size_t>(count) * static_cast<size_t>(seq_len);
  batch.tokens.resize(size);
  batch.targets.resize(size, kNoTarget);
  batch.document_start.resize(size);
  return batch;
}

std::span<int32_t> row(std::vector<int32_t>& values, int64_t index, int64_t seq_len,
                       int64_t length) {
  return std::span(values).subspan(static_cast<size_t>(index * seq_len),
                                   static_cast<size_t>(length));
}

Sample make_sample(int64_t length) {
  const auto size = static_cast<size_t>(length);
  return {std::vector<int32_t>(size), std::vector<int32_t>(size), std::vector<int32_t>(size)};
}

void check_window_settings(int64_t seq_len, int64_t vocab_size, int32_t eod_id) {
  SMELT_CHECK(ConfigError, seq_len >= 1 && seq_len < std::numeric_limits<int32_t>::max(),
              "data: seq_len is " << seq_len << "; allowed are 1 to 2147483646");
  SMELT_CHECK(ConfigError, vocab_size >= 1,
              "data: vocab_size is " << vocab_size << "; at least 1 is needed");
  SMELT_CHECK(
      ConfigError, eod_id >= 0 && eod_id < vocab_size,
      "data: the end-of-document id " << eod_id << " is outside the vocabulary of " << vocab_size);
}

std::unique_ptr<TokenFile> open_checked(const std::string& prefix, int64_t vocab_size) {
  auto file = std::make_unique<TokenFile>(prefix);
  file->check_ids(vocab_size);
  return file;
}

// A keyed permutation of [0, n) at one point, without a table: a balanced Feistel network over the
// next even number of bits, walked until the value falls into range (below four steps on average).
int64_t permute_index(const Random& random, int64_t index, int64_t n) {
  constexpr int kRounds = 6;
  const auto width = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  const int bits = std::max(1, (width + 1) / 2);
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> bits, right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (random.bits(round << 32 | right) & mask);
      left = right;
      right = mixed;
    }
    value = left << bits | right;
  } while (value >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(value);
}

}  // namespace

int64_t Batch::target_count() const {
  return std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t != kNoTarget; });
}

BlendedDataset::BlendedDataset(DatasetConfig config) : config_(std::move(config)) {
  check_window_settings(config_.seq_len, config_.vocab_size, config_.eod_id);
  SMELT_CHECK(ConfigError, !config_.domains.empty() && config_.domains.size() <= 65535,
              "data: " << config_.domains.size() << " training domains; allowed are 1 to 65535");
  const auto weighted = std::count_if(config_.domains.begin(), config_.domains.end(),
                                      [](const DomainSource& d) { return d.weight.has_value(); });
  SMELT_CHECK(ConfigError,
              weighted == 0 || weighted == static_cast<int64_t>(config_.domains.size()),
              "data: " << weighted << " of " << config_.domains.size()
                       << " domains have a weight; give one to all or to none");

  std::vector<double> weights;
  for (size_t d = 0; d < config_.domains.size(); ++d) {
    const DomainSource& source = config_.domains[d];
    for (size_t e = 0; e < d; ++e) {
      SMELT_CHECK(ConfigError, config_.domains[e].name != source.name,
                  "data: the domain '" << source.name << "' is given twice");
    }
    const auto& file = files_.emplace_back(open_checked(source.prefix, config_.vocab_size));
    const int64_t tokens = file->tokens();
    SMELT_CHECK(
        ConfigError, tokens > config_.seq_len,
        "data: domain '" << source.name << "' (" << source.prefix << ") has " << tokens
                         << " tokens; one window needs seq_len + 1 = " << config_.seq_len + 1);
    const double weight = source.weight.value_or(static_cast<double>(tokens));
    SMELT_CHECK(
        ConfigError, weight > 0 && std::isfinite(weight),
        "data: domain '" << source.name << "' has weight " << weight << "; it must be above 0");
    weights.push_back(weight);
    const int64_t windows = (tokens - 1) / config_.seq_len;
    info_.push_back({source.name, tokens, windows, tokens - 1 - windows * config_.seq_len, 0});
  }

  build_blend(weights);
}

// Interleaves the domains by largest deficit: at every position each domain earns its weight, the
// one that is owed most is taken (the first of equals) and pays the sum of the weights. With
// integer weights that is exact, hence equal on every machine, and periodic: a deficit stays above
// minus the sum, so after "sum" positions, where all are multiples of it and add up to 0, all are 0
// again and each domain came exactly "weight" times. One period as a table therefore reaches any
// position.
void BlendedDataset::build_blend(const std::vector<double>& weights) {
  constexpr double kPeriod = 1 << 18;  // shares are exact to 4e-6; the table has 1.5 MB
  double sum = 0;
  for (const double weight : weights) sum += weight;
  int64_t period = 0;
  for (const double weight : weights) {
    per_period_.push_back(std::max<int64_t>(1, std::llround(weight / sum * kPeriod)));
    period += per_period_.back();
  }
  std::vector<int64_t> deficit(weights.size());
  std::vector<int32_t> count(weights.size());
  for (int64_t position = 0; position < period; ++position) {
    size_t best = 0;
    for (size_t d = 0; d < deficit.size(); ++d) {
      deficit[d] += per_period_[d];
      if (deficit[d] > deficit[best]) best = d;
    }
    deficit[best] -= period;
    blend_domain_.push_back(static_cast<uint16_t>(best));
    blend_before_.push_back(count[best]++);
  }
  for (size_t d = 0; d < info_.size(); ++d) {
    info_[d].share = static_cast<double>(per_period_[d]) / static_cast<double>(period);
  }
}

int64_t BlendedDataset::shuffled(int64_t domain, int64_t epoch, int64_t position) const {
  const DomainInfo& info = info_[static_cast<size_t>(domain)];
  const Random random(config_.seed, "data/order/" + info.name + "/epoch/" + std::to_string(epoch));
  return permute_index(random, position, info.windows);
}

SequenceId BlendedDataset::locate(int64_t index) const {
  SMELT_CHECK(ConfigError, index >= 0, "data: sequence " << index << " asked for");
  const auto period = static_cast<int64_t>(blend_domain_.size());
  const auto position = static_cast<size_t>(index % period);
  const size_t domain = blend_domain_[position];
  const int64_t nth = index / period * per_period_[domain] + blend_before_[position];
  const int64_t windows = info_[domain].windows;
  const int64_t epoch = nth / windows;
  const auto number = static_cast<int64_t>(domain);
  return {number, epoch, shuffled(number, epoch, nth % windows)};
}

Sample BlendedDataset::sample(int64_t index) const {
  const SequenceId id = locate(index);
  Sample sample = make_sample(config_.seq_len);
  cut_window(*files_[static_cast<size_t>(id.domain)], id.window * config_.seq_len,
             {config_.eod_id, config_.document_mask}, sample.tokens, sample.targets,
             sample.document_start);
  return sample;
}

Batch BlendedDataset::batch(int64_t first, int64_t count) const {
  SMELT_CHECK(ConfigError, count >= 0, "data: a batch of " << count << " sequences asked for");
  const int64_t seq_len = config_.seq_len;
  Batch batch = make_batch(count, seq_len);
  for (int64_t i = 0; i < count; ++i) {
    const SequenceId id = locate(first + i);
    cut_window(*files_[static_cast<size_t>(id.domain)], id.window * seq_len,
               {config_.eod_id, config_.document_mask}, row(batch.tokens, i, seq_len, seq_len),
               row(batch.targets, i, seq_len, seq_len),
               row(batch.document_start, i, seq_len, seq_len));
  }
  return batch;
}

std::string BlendedDataset::fingerprint() const {
  constexpr int64_t kProbes = 1024;
  std::ostringstream text;
  text << "smelt data 1 seq_len " << config_.seq_len << " vocab " << config_.vocab_size << " eod "
       << config_.eod_id << " mask " << config_.document_mask << " seed " << config_.seed;
  for (size_t d = 0; d < files_.size(); ++d) {
    const TokenFile& file = *files_[d];
    text << "\ndomain " << info_[d].name.size() << ' ' << info_[d].name << " share "
         << per_period_[d] << " tokens " << file.tokens() << " documents " << file.documents()
         << " width " << token_bytes(file.type()) << " probes";
    const int64_t stride = std::max<int64_t>(1, file.tokens() / kProbes);
    for (int64_t i = 0; i < file.tokens(); i += stride) text << ' ' << file.token(i);
  }
  const boost::uuids::name_generator_sha1 sha1{boost::uuids::ns::oid()};
  return to_string(sha1(text.str()));
}

EvalDataset::EvalDataset(Config config) : config_(std::move(config)) {
  check_window_settings(config_.seq_len, config_.vocab_size, config_.eod_id);
  file_ = open_checked(config_.prefix, config_.vocab_size);
  SMELT_CHECK(ConfigError, file_->tokens() >= 2,
              "data: domain '" << config_.name << "' (" << config_.prefix << ") has "
                               << file_->tokens() << " tokens; evaluation needs at least 2");
  sequences_ = (file_->tokens() - 2) / config_.seq_len + 1;
}

Sample EvalDataset::sample(int64_t index) const {
  SMELT_CHECK(ConfigError, index >= 0 && index < sequences_,
              "data: sequence " << index << " of domain '" << config_.name
                                << "' asked for, but there are " << sequences_);
  const int64_t first = index * config_.seq_len;
  Sample sample = make_sample(std::min(config_.seq_len, file_->tokens() - 1 - first));
  cut_window(*file_, first, {config_.eod_id, config_.document_mask}, sample.tokens, sample.targets,
             sample.document_start);
  return sample;
}

Batch EvalDataset::batch(int64_t first, int64_t count) const {
  SMELT_CHECK(ConfigError, first >= 0 && count >= 0 && first <= sequences_ - count,
              "data: sequences " << first << " + " << count << " of domain '" << config_.name
                                 << "' asked for, but there are " << sequences_);
  const int64_t seq_len = config_.seq_len;
  Batch batch = make_batch(count, seq_len);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = (first + i) * seq_len;
    const int64_t length = std::min(seq_len, file_->tokens() - 1 - at);
    cut_window(*file_, at, {config_.eod_id, config_.document_mask},
               row(batch.tokens, i, seq_len, length), row(batch.targets, i, seq_len, length),
               row(batch.document_start, i, seq_len, length));
    const auto padding =
        row(batch.document_start, i, seq_len, seq_len).subspan(static_cast<size_t>(length));
    std::fill(padding.begin(), padding.end(), static_cast<int32_t>(length));
  }
  return batch;
}

double mean_context(const TokenFile& file, int64_t seq_len, bool document_mask) {
  SMELT_CHECK(ConfigError, seq_len >= 1,
              "data: seq_len is " << seq_len << "; at least 1 is needed");
  const int64_t windows = (file.tokens() - 1) / seq_len;
  const int64_t end = windows > 0 ? windows * seq_len : file.tokens();
  SMELT_CHECK(IoError, end > 0, file.prefix() << ": no tokens");
  const auto triangle = [](int64_t n) { return double(n) * double(n + 1) / 2; };
  double keys = 0;
  // Pieces between the ends of windows and, under the mask, of documents.
  for (int64_t at = 0, document = 0; at < end;) {
    int64_t next = std::min((at / seq_len + 1) * seq_len, end);
    if (document_mask) {
      while (file.document_begin(document + 1) <= at) ++document;
      next = std::min(next, file.document_begin(document + 1));
    }
    keys += triangle(next - at);
    at = next;
  }
  return keys / double(end);
}

double BlendedDataset::mean_context() const {
  double keys = 0;
  for (size_t d = 0; d < files_.size(); ++d)
    keys +=
        info_[d].share * smelt::mean_context(*files_[d], config_.seq_len, config_.document_mask);
  return keys;
}

}  // namespace smelt
