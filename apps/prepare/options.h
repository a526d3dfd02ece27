// Command line of smelt-prepare.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/prepare/clean.h"

namespace smelt {

struct PrepareOptions {
  std::string corpus;               ///< size of the offline corpus, or empty
  std::vector<std::string> inputs;  ///< files of the user's own, or empty
  std::string out;
  std::string cache;     ///< folder for downloaded packages
  std::string text_dir;  ///< folder for extracted text, or empty
  std::string domain;
  std::string text_key;
  std::optional<Split> split{};  ///< all documents there; unset: by hash
  bool json = false;
  bool help = false, version = false;
};

/// Reads the command line. @throws ConfigError for unknown, missing or contradicting options.
PrepareOptions parse_options(int argc, const char* const* argv);
/// The text of --help.
std::string help_text();

}  // namespace smelt
