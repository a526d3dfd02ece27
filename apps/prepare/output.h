// What smelt-prepare writes: DIR/<domain>.<split>.bin/.idx, DIR/tokenizer.json and DIR/corpus.json.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>

#include "apps/common/token_file.h"
#include "apps/common/tokenizer/tokenizer.h"
#include "apps/prepare/clean.h"

namespace smelt {

struct SplitTotals {
  int64_t documents = 0, bytes = 0, tokens = 0;
};

/// The token files of one domain, one per split.
class DomainWriter {
 public:
  /// Opens the three splits. @throws ConfigError for a name that is no file name, IoError.
  DomainWriter(const std::string& dir, const std::string& domain, const Tokenizer& tokenizer);

  /// Appends a document and its end-of-document token.
  void add(Split split, std::string_view text);
  /// Gives the files their names. Until then nothing is visible.
  void finish();

  const std::string& domain() const { return domain_; }
  const SplitTotals& totals(Split split) const { return totals_[static_cast<size_t>(split)]; }
  /// Over all splits.
  SplitTotals totals() const;

 private:
  std::string domain_;
  const Tokenizer& tokenizer_;
  std::array<std::unique_ptr<TokenFileWriter>, kSplitNames.size()> files_;
  std::array<SplitTotals, kSplitNames.size()> totals_;
};

/// The entry of a domain in corpus.json: documents, bytes and tokens, in total and per split.
boost::json::object describe(const DomainWriter& writer);

/// Writes DIR/corpus.json. `domains` maps names to entries; entries of other domains that an
/// existing file has are kept. Returns the whole document. @throws IoError.
boost::json::object write_corpus_json(const std::string& dir, const Tokenizer& tokenizer,
                                      const boost::json::object& domains);

}  // namespace smelt
