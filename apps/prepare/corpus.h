// The offline corpus: packages in, token files per domain and split out.
#pragma once

#include <string>

#include <boost/json/object.hpp>

#include "apps/common/tokenizer/tokenizer.h"
#include "apps/prepare/clean.h"
#include "apps/prepare/manifest.h"
#include "apps/prepare/packages.h"

namespace smelt {

struct CorpusJob {
  std::string out;       ///< folder for the token files
  std::string cache;     ///< folder for the packages
  std::string text_dir;  ///< if not empty, the extracted text goes there too
};

/// Extracts one row of the manifest from its package file, before de-duplication across packages.
CleanResult extract_row(const ManifestRow& row, const std::string& package_file);

/// Fetches, extracts, checks against the published totals and writes the token files of all
/// domains. Returns the entries for corpus.json. The result depends on the manifest only.
/// @throws RunError if packages cannot be had or a domain is off by more than 1 %.
boost::json::object prepare_corpus(const Manifest& manifest, const CorpusJob& job,
                                   const Tokenizer& tokenizer, const Report& report);

}  // namespace smelt
