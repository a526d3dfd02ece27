// Command line of smelt-prepare.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/text_source.h"
#include "apps/prepare/clean.h"
#include "apps/prepare/document_source.h"

namespace smelt {

struct PrepareOptions {
  std::string corpus;               ///< size of the offline corpus, or empty
  std::vector<std::string> inputs;  ///< the user's own files and folders, or empty
  std::string out;
  std::string cache;     ///< folder for downloaded packages
  std::string text_dir;  ///< folder for extracted text, or empty
  std::string domain;
  TextOptions text{};
  std::optional<TokenFormat> token_format{};  ///< set: the inputs are token files
  std::string tokenizer;                      ///< tokenizer.json or its folder; empty: bytes
  std::string eod;                            ///< its end-of-document token; empty: by its rule
  int64_t train_vocab = 0;                    ///< ids of a tokenizer to train; 0: none
  std::string train_style;
  int64_t train_bytes = 0;               ///< of text to train it on
  std::optional<TokenIds> vocabulary{};  ///< of token files without a tokenizer
  std::optional<Split> split{};          ///< all documents there; unset: by hash
  double holdout = 0.025;
  bool unique = false;
  int64_t max_bad = 0;
  int threads = 1;
  double save_every = 60;
  bool restart = false;
  bool json = false;
  bool help = false, version = false;
};

/// Reads the command line. @throws ConfigError for unknown, missing or contradicting options.
PrepareOptions parse_options(int argc, const char* const* argv);
/// The text of --help.
std::string help_text();

}  // namespace smelt
