// Training and evaluation data: windows of token files.
//
// A domain's tokens t[0..N) are cut into windows that share one token: window w holds tokens
// x = t[wS .. wS+S) and targets y = t[wS+1 .. wS+S]. Training draws from several domains by weight.
// Sequence i of a run is a pure function of (configuration, seed, i), so the position of a run is
// one number, whatever the ranks and batches, and any i can be reached after a resume.
//
// With document_mask, position t belongs to a document that starts at document_start[t] within the
// sequence, and where tokens[t] ends a document there is no target (kNoTarget): the next token
// belongs to another document. Without it all targets count and document_start is 0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/common/token_file.h"

namespace smelt {

/// The target of a position that predicts nothing.
inline constexpr int32_t kNoTarget = -1;

/// One sequence, three arrays of seq_len elements (fewer in the last sequence of an evaluation).
struct Sample {
  std::vector<int32_t> tokens, targets, document_start;
};

/// Sequences of equal length, row-major [batch, seq_len].
struct Batch {
  int64_t batch = 0, seq_len = 0;
  std::vector<int32_t> tokens, targets, document_start;
  /// Positions that have a target.
  int64_t target_count() const;
};

/// A token file to train on. Weights are relative; either every domain has one or none has, which
/// means sampling by size (weight = number of tokens).
struct DomainSource {
  std::string name, prefix;
  std::optional<double> weight{};
};

struct DatasetConfig {
  std::vector<DomainSource> domains;
  int64_t seq_len = 0;
  int64_t vocab_size = 0;
  int32_t eod_id = 0;
  bool document_mask = true;
  uint64_t seed = 0;
};

/// Where a sequence comes from: window `window` of domain `domain`, in that domain's epoch `epoch`.
struct SequenceId {
  int64_t domain = 0, epoch = 0, window = 0;
  bool operator==(const SequenceId&) const = default;
};

/// What a run should report about a domain.
struct DomainInfo {
  std::string name;
  int64_t tokens = 0, windows = 0;
  int64_t dropped_tokens = 0;  ///< at the end, shorter than a window, never trained on
  double share = 0;            ///< of the sequences
};

/// An endless deterministic blend of domains. Const functions may be called from several threads.
class BlendedDataset {
 public:
  /// Opens and scans all files.
  /// @throws ConfigError for bad settings or a domain shorter than one window, IoError for damaged
  ///   files or ids outside the vocabulary.
  explicit BlendedDataset(DatasetConfig config);

  /// Sequence `index` >= 0 of the run.
  Sample sample(int64_t index) const;
  /// Sequences [first, first + count).
  Batch batch(int64_t first, int64_t count) const;
  /// Where sequence `index` comes from.
  SequenceId locate(int64_t index) const;
  const std::vector<DomainInfo>& domains() const { return info_; }
  int64_t seq_len() const { return config_.seq_len; }
  /// Mean number of keys that a query of the blend sees (see mean_context below).
  double mean_context() const;
  /// Hash of everything that decides which tokens a sequence holds: domains, sizes, a sample of the
  /// tokens, weights, window settings, seed. A resumed run must see the value it started with.
  std::string fingerprint() const;

 private:
  void build_blend(const std::vector<double>& weights);
  int64_t shuffled(int64_t domain, int64_t epoch, int64_t position) const;

  DatasetConfig config_;
  std::vector<std::unique_ptr<TokenFile>> files_;
  std::vector<DomainInfo> info_;
  // One period of the blend: position -> domain, and how many of that domain came before it.
  std::vector<uint16_t> blend_domain_;
  std::vector<int32_t> blend_before_;
  std::vector<int64_t> per_period_;  // sequences of each domain in one period
};

/// Mean number of keys that a query sees, itself included, over the training windows of a token
/// file (over all of it when it is shorter than one): its document's earlier tokens in the window,
/// or all earlier tokens of the window without document_mask. Reads the index only.
double mean_context(const TokenFile& file, int64_t seq_len, bool document_mask);

/// One split of one domain, walked in order. Nothing is dropped: the last sequence is as long as
/// the data, and every token but the first is a target exactly once (except, with document_mask,
/// the first token of each document, which nothing predicts).
class EvalDataset {
 public:
  struct Config {
    std::string name, prefix;
    int64_t seq_len = 0;
    int64_t vocab_size = 0;
    int32_t eod_id = 0;
    bool document_mask = true;
  };
  /// Opens and scans the file. @throws ConfigError, IoError (fewer than two tokens included).
  explicit EvalDataset(Config config);

  const std::string& name() const { return config_.name; }
  int64_t tokens() const { return file_->tokens(); }
  /// Number of sequences, the last possibly short.
  int64_t sequences() const { return sequences_; }
  /// Sequence `index`, 0 <= index < sequences().
  Sample sample(int64_t index) const;
  /// Sequences [first, first + count), the short one padded: token 0, no target, and a document of
  /// its own. `first + count` may not exceed sequences().
  Batch batch(int64_t first, int64_t count) const;

 private:
  Config config_;
  std::unique_ptr<TokenFile> file_;
  int64_t sequences_ = 0;
};

}  // namespace smelt
