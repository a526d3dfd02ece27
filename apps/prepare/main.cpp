// smelt-prepare: text to token files. See help_text() for what it reads and writes.
#include <cstdio>
#include <filesystem>
#include <iostream>

#include <boost/json.hpp>

#include "apps/common/cli.h"
#include "apps/common/text_source.h"
#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "apps/prepare/corpus.h"
#include "apps/prepare/corpus_tables.h"
#include "apps/prepare/options.h"
#include "apps/prepare/output.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

void make_folder(const std::string& option, const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  SMELT_CHECK(IoError, !error, option << ": cannot create '" << dir << "': " << error.message());
}

// The user's own files as one domain. A document's name, which decides its split, is the file's
// name without folders, with the line for JSON lines: moving the files changes nothing.
json::object prepare_inputs(const PrepareOptions& options, const Tokenizer& tokenizer) {
  DomainWriter writer(options.out, options.domain, tokenizer);
  TextOptions text_options;
  text_options.text_key = options.text_key;
  json::array inputs;
  for (const std::string& path : options.inputs) {
    const std::string name = fs::path(path).filename().string();
    const TextSummary summary =
        read_documents(path, text_options, [&](const std::string& text, int64_t line) {
          const std::string id = line > 0 ? name + '#' + std::to_string(line) : name;
          writer.add(options.split.value_or(split_of(id)), text);
        });
    inputs.push_back({{"file", name}, {"documents", summary.documents}, {"empty", summary.empty}});
  }
  writer.finish();
  json::object entry = describe(writer);
  entry["inputs"] = inputs;
  return {{options.domain, entry}};
}

void print_table(const json::object& domains) {
  std::printf("%-14s %-6s %10s %14s %14s\n", "domain", "split", "documents", "bytes", "tokens");
  for (const auto& [name, entry] : domains) {
    for (const auto& [split, totals] : entry.at("splits").as_object()) {
      std::printf("%-14s %-6s %10lld %14lld %14lld\n", std::string(name).c_str(),
                  std::string(split).c_str(),
                  static_cast<long long>(totals.at("documents").as_int64()),
                  static_cast<long long>(totals.at("bytes").as_int64()),
                  static_cast<long long>(totals.at("tokens").as_int64()));
    }
  }
}

int run(int argc, char** argv) {
  const PrepareOptions options = parse_options(argc, argv);
  if (options.help) {
    std::cout << help_text();
    return 0;
  }
  if (options.version) {
    std::cout << version_text() << '\n';
    return 0;
  }
  const ByteTokenizer tokenizer;
  const auto report = [](const std::string& line) { std::cerr << line << '\n'; };
  json::object domains;
  if (!options.corpus.empty()) {
    const Manifest manifest = load_manifest(options.corpus);
    make_folder("--out", options.out);
    if (!options.text_dir.empty()) make_folder("--keep-text", options.text_dir);
    domains =
        prepare_corpus(manifest, {options.out, options.cache, options.text_dir}, tokenizer, report);
  } else {
    make_folder("--out", options.out);
    domains = prepare_inputs(options, tokenizer);
  }
  tokenizer.save(options.out);
  const json::object document = write_corpus_json(options.out, tokenizer, domains);
  if (options.json) {
    std::cout << json::serialize(document) << '\n';
  } else {
    print_table(domains);
  }
  return 0;
}

}  // namespace
}  // namespace smelt

int main(int argc, char** argv) { return smelt::main_guard(argc, argv, "prepare", smelt::run); }
