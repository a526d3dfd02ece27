#include "apps/prepare/output.h"

#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <boost/json.hpp>

#include "apps/common/output_file.h"
#include "apps/common/run_folder.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

json::object numbers(const SplitTotals& totals) {
  json::object lengths;  // by the least length of each class
  for (size_t i = 0; i < totals.lengths.size(); ++i) {
    if (totals.lengths[i] > 0) lengths[std::to_string(uint64_t{1} << i)] = totals.lengths[i];
  }
  json::object result{{"documents", totals.documents},
                      {"bytes", totals.bytes},
                      {"tokens", totals.tokens},
                      {"lengths", lengths}};
  if (totals.tokens > 0) result["bytes_per_token"] = double(totals.bytes) / double(totals.tokens);
  return result;
}

SplitTotals totals_of(const json::value& numbers) {
  SplitTotals totals{numbers.at("documents").as_int64(),
                     numbers.at("bytes").as_int64(),
                     numbers.at("tokens").as_int64(),
                     {}};
  for (const auto& [least, count] : numbers.at("lengths").as_object())
    totals.lengths.at(std::bit_width(std::stoull(std::string(least))) - 1) = count.as_int64();
  return totals;
}

std::string path_of(const std::string& dir) { return (fs::path(dir) / "corpus.json").string(); }

// An existing corpus.json, empty if there is none.
json::object existing_corpus(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  const std::string text(std::istreambuf_iterator<char>(in), {});
  json::error_code error;
  json::value value = json::parse(text, error);
  const auto* object = error ? nullptr : value.if_object();
  const auto* domains = object ? object->if_contains("domains") : nullptr;
  SMELT_CHECK(IoError, domains && domains->is_object(),
              path << ": not a corpus description; remove it or choose another --out");
  return *object;
}

}  // namespace

void SplitTotals::add(int64_t document_bytes, int64_t document_tokens) {
  documents += 1;
  bytes += document_bytes;
  tokens += document_tokens;
  const auto bits = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(document_tokens)));
  lengths.at(bits > 0 ? bits - 1 : 0) += 1;
}

void SplitTotals::add(const SplitTotals& other) {
  documents += other.documents;
  bytes += other.bytes;
  tokens += other.tokens;
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] += other.lengths[i];
}

DomainWriter::DomainWriter(const std::string& dir, const std::string& domain,
                           const TokenIds& vocabulary, const json::object& state)
    : domain_(domain) {
  SMELT_CHECK(ConfigError,
              !domain.empty() && domain.front() != '.' &&
                  domain.find_first_of("/=:,\n\t ") == std::string::npos,
              "--domain: '" << domain
                            << "' is not allowed; use a name without blanks, '/', '=', ':' or ','");
  for (size_t s = 0; s < kSplitNames.size(); ++s) {
    const fs::path prefix = fs::path(dir) / (domain + '.' + std::string(kSplitNames[s]));
    std::optional<TokenFilePosition> resume;
    if (!state.empty()) {
      totals_[s] = totals_of(state.at(kSplitNames[s]));
      resume = {totals_[s].documents, totals_[s].tokens};
    }
    files_[s] = std::make_unique<TokenFileWriter>(prefix.string(), vocabulary.size, resume);
  }
}

void DomainWriter::add(Split split, std::span<const int32_t> ids, int64_t bytes) {
  const auto s = static_cast<size_t>(split);
  files_[s]->append(ids);
  totals_[s].add(bytes, static_cast<int64_t>(ids.size()));
}

json::object DomainWriter::sync() {
  json::object state;
  for (size_t s = 0; s < kSplitNames.size(); ++s) {
    files_[s]->sync();
    state[kSplitNames[s]] = numbers(totals_[s]);
  }
  return state;
}

void DomainWriter::finish() {
  for (const auto& file : files_) file->finish();
}

SplitTotals DomainWriter::totals() const {
  SplitTotals sum;
  for (const SplitTotals& split : totals_) sum.add(split);
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

std::vector<int32_t> encode_document(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text);
  ids.push_back(tokenizer.eod_id());
  return ids;
}

void check_same_vocabulary(const std::string& dir, const TokenIds& vocabulary,
                           const std::string& tokenizer_json) {
  const json::object corpus = existing_corpus(path_of(dir));
  const std::pair<const char*, int64_t> wanted[] = {{"vocab_size", vocabulary.size},
                                                    {"eod_id", vocabulary.eod_id}};
  for (const auto& [key, value] : wanted) {
    const json::value* const found = corpus.if_contains(key);
    SMELT_CHECK(ConfigError, found == nullptr || (found->is_int64() && found->as_int64() == value),
                path_of(dir) << ": " << key << " = " << json::serialize(*found) << ", not " << value
                             << " as asked for now: files of two tokenizers do not go into one "
                                "folder; choose another --out");
  }
  const std::string tokenizer = (fs::path(dir) / "tokenizer.json").string();
  SMELT_CHECK(ConfigError,
              corpus.empty() || tokenizer_json.empty() || !fs::exists(tokenizer) ||
                  read_text_file(tokenizer) == tokenizer_json,
              tokenizer << ": is another tokenizer than the one asked for now: files of two do "
                           "not go into one folder; choose another --out");
}

json::object write_corpus_json(const std::string& dir, const TokenIds& vocabulary,
                               const json::object& domains) {
  const std::string path = path_of(dir);
  json::object all;
  const json::object before = existing_corpus(path);
  if (!before.empty()) all = before.at("domains").as_object();
  for (const auto& [name, entry] : domains) all[name] = entry;
  const json::object document{{"format", "smelt corpus"},
                              {"version", 1},
                              {"vocab_size", vocabulary.size},
                              {"eod_id", vocabulary.eod_id},
                              {"domains", all}};
  write_file(path, json::serialize(document) + "\n");
  return document;
}

}  // namespace smelt
