#include "apps/prepare/manifest.h"

#include <algorithm>
#include <charconv>

#include "apps/prepare/corpus_tables.h"
#include "apps/prepare/text_bytes.h"
#include "tensor/error.h"

namespace smelt {
namespace {

// The rows of a table without its heading, as fields.
std::vector<std::vector<std::string>> table_rows(std::string_view table, size_t columns) {
  std::vector<std::vector<std::string>> rows;
  bool heading = true;
  for (const std::string_view line : split_at(table, "\n")) {
    if (line.empty()) continue;
    const auto fields = split_at(line, "\t");
    SMELT_CHECK(ConfigError, fields.size() == columns,
                "corpus: the row '" << line << "' has " << fields.size() << " fields, expected "
                                    << columns);
    if (!heading) rows.emplace_back(fields.begin(), fields.end());
    heading = false;
  }
  return rows;
}

int64_t number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SMELT_CHECK(ConfigError, error == std::errc() && end == text.data() + text.size(),
              "corpus: '" << text << "' is not a number");
  return value;
}

}  // namespace

std::string PackageInfo::file_name() const {
  std::string escaped;
  for (const char c : version) escaped += c == ':' ? "%3a" : std::string(1, c);
  return name + '_' + escaped + '_' + architecture + ".deb";
}

Manifest load_manifest(std::string_view size) {
  SMELT_CHECK(ConfigError, size == "small",
              "--corpus: the size '" << size << "' is not supported; allowed is small");
  Manifest manifest;
  manifest.size = size;
  for (auto& row : table_rows(kManifestTable, 7)) {
    if (row[0] == size) {
      manifest.rows.push_back({row[1], row[2], row[3], row[4], row[5], number(row[6])});
    }
  }
  for (auto& row : table_rows(kTotalsTable, 4)) {
    if (row[0] == size) manifest.totals.push_back({row[1], number(row[2]), number(row[3])});
  }
  const auto packages = table_rows(kPackagesTable, 8);
  for (const ManifestRow& row : manifest.rows) {
    if (std::any_of(manifest.packages.begin(), manifest.packages.end(),
                    [&](const PackageInfo& p) { return p.name == row.package; })) {
      continue;
    }
    const auto found = std::find_if(packages.begin(), packages.end(), [&](const auto& fields) {
      return fields[0] == row.package && fields[1] == row.version;
    });
    SMELT_CHECK(ConfigError, found != packages.end(),
                "corpus: the package " << row.package << ' ' << row.version << " is not listed");
    const auto& f = *found;
    manifest.packages.push_back({f[0], f[1], f[2], f[3], number(f[4]), f[5], f[6]});
  }
  return manifest;
}

}  // namespace smelt
