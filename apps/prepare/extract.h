// Package files to documents, by the methods of the corpus manifest:
//   text      the file, UTF-8 or Latin-1
//   html      html_to_text, then strip_boilerplate over the package
//   dict      dictionary (.dz = gzip) and its .index; articles joined to 16 KB documents
//   sword     Bible module: blocks of zlib data (.bzz, .czz) listed in .bzs, .czs
//   fortune   split at lines holding only %, joined to 16 KB documents
//   paras     split at blank lines, joined to 16 KB documents
// For all but dict and sword a file named .gz is decompressed first.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apps/prepare/clean.h"
#include "apps/prepare/html_text.h"

namespace smelt {

/// Shell patterns separated by blanks; * also crosses /, a leading ! excludes.
class PathFilter {
 public:
  explicit PathFilter(std::string_view globs);
  bool matches(const std::string& path) const;

 private:
  std::vector<std::string> wanted_, excluded_;
};

/// Inflates gzip data (all members). @throws IoError naming `label` if it is damaged or cut off.
std::string gunzip(std::string_view data, std::string_view label);

/// Extracts one package: add() its files in archive order, then finish().
class Extractor {
 public:
  /// @throws ConfigError for a method that is not supported.
  explicit Extractor(std::string method);

  /// Takes one file. @throws IoError if it is damaged.
  void add(const std::string& path, std::string bytes);
  /// All documents, in archive order. Call once.
  std::vector<Document> finish();
  /// The filter rules that belong to the method.
  CleanRules rules() const;

 private:
  void add_dictionary();
  void add_sword_modules();

  std::string method_;
  std::vector<Document> documents_;
  std::map<std::string, std::string> files_;  // dict and sword need several files together
};

}  // namespace smelt
