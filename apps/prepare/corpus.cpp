#include "apps/prepare/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <boost/json.hpp>

#include "apps/common/process.h"
#include "apps/prepare/extract.h"
#include "apps/prepare/ordered_work.h"
#include "apps/prepare/output.h"
#include "apps/prepare/tar_reader.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace json = boost::json;

constexpr double kTolerance = 0.01;  // of the published sizes

void check_size(const std::string& what, int64_t found, int64_t expected) {
  const auto difference = std::abs(static_cast<double>(found - expected));
  SMELT_CHECK(RunError, difference <= kTolerance * static_cast<double>(expected),
              "corpus: " << what << " came to " << found << " bytes, expected " << expected
                         << " within 1 %");
}

json::object describe_package(const PackageInfo& package) {
  return {{"name", package.name},
          {"version", package.version},
          {"architecture", package.architecture},
          {"sha256", package.sha256},
          {"licence", package.licence}};
}

// Pieces of a row as one file, each ended by a NUL.
void write_text(const std::string& dir, const ManifestRow& row, const CleanResult& result) {
  const auto path = std::filesystem::path(dir) / (row.package + '.' + row.method + ".txt");
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  for (const Piece& piece : result.pieces) out << piece.text << '\0';
  out.close();
  SMELT_CHECK(IoError, out, path.string() << ": cannot write");
}

}  // namespace

CleanResult extract_row(const ManifestRow& row, const std::string& package_file) {
  CommandStream archive({"dpkg-deb", "--fsys-tarfile", package_file});
  TarReader tar([&](char* data, size_t size) { return archive.read(data, size); }, package_file);
  const PathFilter filter(row.globs);
  Extractor extractor(row.method);
  TarMember member;
  while (tar.next(member)) {
    const size_t begin = member.name.find_first_not_of("./");
    if (!member.regular || begin == std::string::npos) continue;
    const std::string path = member.name.substr(begin);
    if (filter.matches(path)) extractor.add(path, tar.contents());
  }
  archive.finish();
  return clean(extractor.finish(), extractor.rules());
}

json::object prepare_corpus(const Manifest& manifest, const CorpusJob& job,
                            const Tokenizer& tokenizer, const Report& report) {
  const std::vector<std::string> package_files =
      fetch_packages(manifest.packages, job.cache, report);
  std::vector<std::string> files;  // by row
  std::map<std::string, json::array> packages;
  for (const ManifestRow& row : manifest.rows) {
    const auto package = std::find_if(manifest.packages.begin(), manifest.packages.end(),
                                      [&](const PackageInfo& p) { return p.name == row.package; });
    files.push_back(package_files[static_cast<size_t>(package - manifest.packages.begin())]);
    json::array& listed = packages[row.domain];
    const json::value described = describe_package(*package);
    if (std::find(listed.begin(), listed.end(), described) == listed.end()) {
      listed.push_back(described);
    }
  }

  report("extracting " + std::to_string(files.size()) + " selections of files");
  std::map<std::string, DomainWriter> writers;
  for (const DomainTotal& total : manifest.totals) {
    writers.try_emplace(total.domain, job.out, total.domain,
                        TokenIds{tokenizer.vocab_size(), tokenizer.eod_id()});
  }
  std::set<boost::uuids::uuid> seen;
  // Two threads, at most four rows ahead: memory holds a few packages and not the corpus.
  size_t next_row = 0;
  OrderedWork<size_t, CleanResult> extraction(
      [&] { return next_row < files.size() ? std::optional(next_row++) : std::nullopt; },
      [&](size_t row) { return extract_row(manifest.rows[row], files[row]); }, 2, 4);
  for (const ManifestRow& row : manifest.rows) {
    const CleanResult result = *extraction.take();
    check_size("package " + row.package + " of domain " + row.domain, result.bytes, row.text_bytes);
    if (!job.text_dir.empty()) write_text(job.text_dir, row, result);
    for (const Piece& piece : result.pieces) {
      if (!seen.insert(piece.hash).second) continue;
      writers.at(row.domain)
          .add(split_of(row.package + '/' + piece.id), encode_document(tokenizer, piece.text),
               static_cast<int64_t>(piece.text.size()));
    }
  }

  json::object domains;
  for (const DomainTotal& total : manifest.totals) {
    check_size("domain " + total.domain, writers.at(total.domain).totals().bytes, total.text_bytes);
  }
  for (const DomainTotal& total : manifest.totals) {
    DomainWriter& writer = writers.at(total.domain);
    writer.finish();
    json::object entry = describe(writer);
    entry["corpus"] = manifest.size;
    entry["packages"] = packages[total.domain];
    domains[total.domain] = entry;
  }
  return domains;
}

}  // namespace smelt
