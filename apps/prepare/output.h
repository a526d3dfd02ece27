// What smelt-prepare writes: DIR/<domain>.<train|valid|test>.bin and .idx, DIR/tokenizer.json and
// DIR/corpus.json.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>

#include "apps/common/token_file.h"
#include "apps/common/tokenizer/tokenizer.h"
#include "apps/prepare/clean.h"

namespace smelt {

/// What ids mean to those who read them later.
struct TokenIds {
  int64_t size = 0;
  int32_t eod_id = 0;
};

struct SplitTotals {
  int64_t documents = 0, bytes = 0, tokens = 0;
  /// Documents by length: entry i counts those of 2^i to 2^(i+1) - 1 tokens.
  std::array<int64_t, 32> lengths{};

  void add(int64_t document_bytes, int64_t document_tokens);
  void add(const SplitTotals& other);
};

/// The token files of one domain, one per split.
class DomainWriter {
 public:
  /// Opens the three splits. @param state  of a writer that ended after sync(): goes on there
  /// @throws ConfigError for a name that is no file name, IoError.
  DomainWriter(const std::string& dir, const std::string& domain, const TokenIds& vocabulary,
               const boost::json::object& state = {});

  /// Appends a document, its end-of-document token included, that stands for `bytes` of text.
  void add(Split split, std::span<const int32_t> ids, int64_t bytes);
  /// Brings what was added to the disk; returns the state from which another writer can go on.
  boost::json::object sync();
  /// Gives the files their names. Until then nothing is visible.
  void finish();

  const std::string& domain() const { return domain_; }
  const SplitTotals& totals(Split split) const { return totals_[static_cast<size_t>(split)]; }
  /// Over all splits.
  SplitTotals totals() const;

 private:
  std::string domain_;
  std::array<std::unique_ptr<TokenFileWriter>, kSplitNames.size()> files_;
  std::array<SplitTotals, kSplitNames.size()> totals_;
};

/// The entry of a domain in corpus.json: documents, bytes, tokens, bytes per token and lengths, in
/// total and per split.
boost::json::object describe(const DomainWriter& writer);

/// Ids of `text` and the end-of-document id behind them.
std::vector<int32_t> encode_document(const Tokenizer& tokenizer, std::string_view text);

/// @throws ConfigError when DIR/corpus.json describes files of another vocabulary or DIR has
///   another tokenizer.json, IoError.
/// @param tokenizer_json  text of the tokenizer's file; empty: none
void check_same_vocabulary(const std::string& dir, const TokenIds& vocabulary,
                           const std::string& tokenizer_json);

/// Writes DIR/corpus.json. `domains` maps names to entries; entries of other domains that an
/// existing file has are kept. Returns the whole document. @throws IoError.
boost::json::object write_corpus_json(const std::string& dir, const TokenIds& vocabulary,
                                      const boost::json::object& domains);

}  // namespace smelt
