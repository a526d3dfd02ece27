#include "apps/prepare/output.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <boost/json.hpp>

#include "tensor/error.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

json::object numbers(const SplitTotals& totals) {
  return {{"documents", totals.documents}, {"bytes", totals.bytes}, {"tokens", totals.tokens}};
}

// Domains of an existing corpus.json, empty if there is none.
json::object existing_domains(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  const std::string text(std::istreambuf_iterator<char>(in), {});
  json::error_code error;
  json::value value = json::parse(text, error);
  const auto* object = error ? nullptr : value.if_object();
  const auto* domains = object ? object->if_contains("domains") : nullptr;
  SMELT_CHECK(IoError, domains && domains->is_object(),
              path << ": not a corpus description; remove it or choose another --out");
  return domains->as_object();
}

}  // namespace

DomainWriter::DomainWriter(const std::string& dir, const std::string& domain,
                           const Tokenizer& tokenizer)
    : domain_(domain), tokenizer_(tokenizer) {
  SMELT_CHECK(ConfigError,
              !domain.empty() && domain.front() != '.' &&
                  domain.find_first_of("/=:,\n\t ") == std::string::npos,
              "--domain: '" << domain
                            << "' is not allowed; use a name without blanks, '/', '=', ':' or ','");
  for (size_t s = 0; s < kSplitNames.size(); ++s) {
    const fs::path prefix = fs::path(dir) / (domain + '.' + std::string(kSplitNames[s]));
    files_[s] = std::make_unique<TokenFileWriter>(prefix.string(), tokenizer.vocab_size());
  }
}

void DomainWriter::add(Split split, std::string_view text) {
  const auto s = static_cast<size_t>(split);
  std::vector<int32_t> ids = tokenizer_.encode(text);
  ids.push_back(tokenizer_.eod_id());
  files_[s]->append(ids);
  totals_[s].documents += 1;
  totals_[s].bytes += static_cast<int64_t>(text.size());
  totals_[s].tokens += static_cast<int64_t>(ids.size());
}

void DomainWriter::finish() {
  for (const auto& file : files_) file->finish();
}

SplitTotals DomainWriter::totals() const {
  SplitTotals sum;
  for (const SplitTotals& split : totals_) {
    sum.documents += split.documents;
    sum.bytes += split.bytes;
    sum.tokens += split.tokens;
  }
  return sum;
}

json::object describe(const DomainWriter& writer) {
  json::object entry = numbers(writer.totals());
  json::object splits;
  for (size_t s = 0; s < kSplitNames.size(); ++s) {
    splits[kSplitNames[s]] = numbers(writer.totals(static_cast<Split>(s)));
  }
  entry["splits"] = splits;
  return entry;
}

json::object write_corpus_json(const std::string& dir, const Tokenizer& tokenizer,
                               const json::object& domains) {
  const std::string path = (fs::path(dir) / "corpus.json").string();
  json::object all = existing_domains(path);
  for (const auto& [name, entry] : domains) all[name] = entry;
  const json::object document{{"format", "smelt corpus"},
                              {"version", 1},
                              {"vocab_size", tokenizer.vocab_size()},
                              {"eod_id", tokenizer.eod_id()},
                              {"domains", all}};
  std::ofstream out(path + ".tmp", std::ios::binary | std::ios::trunc);
  out << json::serialize(document) << '\n';
  out.close();
  SMELT_CHECK(IoError, out, path << ".tmp: cannot write: " << std::strerror(errno));
  std::error_code error;
  fs::rename(path + ".tmp", path, error);
  SMELT_CHECK(IoError, !error, path << ": cannot rename: " << error.message());
  return document;
}

}  // namespace smelt
