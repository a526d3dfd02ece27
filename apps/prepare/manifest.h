// The corpus as data: which package goes where and how (corpus/*.tsv, compiled in).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smelt {

/// A row of manifest.tsv: files of one package for one domain.
struct ManifestRow {
  std::string domain, package, version, globs, method;
  int64_t text_bytes = 0;  ///< expected, before de-duplication across packages
};

/// A row of packages.tsv.
struct PackageInfo {
  std::string name, version, architecture, stability;
  int64_t download_bytes = 0;
  std::string sha256, licence;
  /// The name that apt gives the downloaded file.
  std::string file_name() const;
};

/// A row of totals.tsv: what a domain must come to.
struct DomainTotal {
  std::string domain;
  int64_t text_bytes = 0, pieces = 0;
};

struct Manifest {
  std::string size;
  std::vector<ManifestRow> rows;      ///< in the order of the file
  std::vector<PackageInfo> packages;  ///< each once, in the order of their first row
  std::vector<DomainTotal> totals;    ///< in the order of the file
};

/// The compiled-in corpus `size`. @throws ConfigError for any size but small.
Manifest load_manifest(std::string_view size);

}  // namespace smelt
