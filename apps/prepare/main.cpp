// smelt-prepare: text to token files. See help_text() for what it reads and writes.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <boost/json.hpp>
#include <boost/uuid/uuid_io.hpp>

#include "apps/common/cli.h"
#include "apps/common/signals.h"
#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "apps/prepare/corpus.h"
#include "apps/prepare/corpus_tables.h"
#include "apps/prepare/options.h"
#include "apps/prepare/output.h"
#include "apps/prepare/prepare_job.h"
#include "apps/prepare/train_tokenizer.h"
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

/// What must be the same for an interrupted run to go on.
json::object settings_of(const PrepareOptions& o, const std::vector<InputFile>& inputs,
                         const TokenIds& vocabulary, const std::string& tokenizer_text) {
  json::array files;
  for (const InputFile& input : inputs)
    files.push_back({{"path", input.path}, {"bytes", input.bytes}, {"modified", input.modified}});
  const auto number = [](auto value) { return static_cast<int64_t>(value); };
  return {{"input", files},
          {"format", number(o.text.format)},
          {"token_format", o.token_format ? number(*o.token_format) : -1},
          {"text-key", o.text.text_key},
          {"separator", o.text.separator},
          {"split", o.split ? number(*o.split) : -1},
          {"holdout", o.holdout},
          {"unique", o.unique},
          {"max-bad", o.max_bad},
          {"vocab-size", vocabulary.size},
          {"eod-id", vocabulary.eod_id},
          {"tokenizer", boost::uuids::to_string(content_hash(tokenizer_text))}};
}

// The user's own files as one domain.
json::object prepare_inputs(const PrepareOptions& options, const std::vector<InputFile>& inputs,
                            const Tokenizer* tokenizer, const TokenIds& vocabulary) {
  PrepareJob job{.out = options.out, .domain = options.domain, .vocabulary = vocabulary};
  job.split = options.split;
  job.holdout = options.holdout;
  job.unique = options.unique;
  job.max_bad = options.max_bad;
  job.threads = options.threads;
  job.save_every = options.save_every;
  job.restart = options.restart;
  job.input_bytes = 0;
  for (const InputFile& input : inputs) {
    job.input_bytes = input.bytes < 0 || job.input_bytes < 0 ? -1 : job.input_bytes + input.bytes;
  }
  job.settings = settings_of(options, inputs, vocabulary, tokenizer ? tokenizer->json_text() : "");
  json::object entry = run_prepare(job, [&](SourcePosition from) {
    return options.token_format
               ? token_documents(inputs, *options.token_format, vocabulary, tokenizer, from)
               : text_documents(inputs, options.text, *tokenizer, from);
  });
  return {{options.domain, entry}};
}

/// Document lengths as bars, and what was left out.
void print_lengths(const std::string& name, const json::value& entry) {
  const json::object& lengths = entry.at("lengths").as_object();
  int64_t most = 1;
  for (const auto& [least, count] : lengths) most = std::max(most, count.as_int64());
  std::printf("\n%s: documents by tokens\n", name.c_str());
  for (const auto& [least, count] : lengths) {
    const auto bar = size_t(40 * count.as_int64() / most);
    std::printf("%12s+ %10lld %s\n", std::string(least).c_str(), (long long)count.as_int64(),
                std::string(std::max<size_t>(bar, 1), '#').c_str());
  }
  const json::value* const skipped = entry.as_object().if_contains("skipped");
  if (skipped == nullptr) return;
  for (const auto& [reason, count] : skipped->as_object())
    if (count.as_int64() > 0)
      std::printf("%lld %s records left out\n", (long long)count.as_int64(),
                  std::string(reason).c_str());
}

void print_table(const json::object& domains) {
  std::printf("%-14s %-6s %10s %14s %14s %12s\n", "domain", "split", "documents", "bytes", "tokens",
              "bytes/token");
  for (const auto& [name, entry] : domains) {
    for (const auto& split : entry.at("splits").as_object()) {
      const json::object& totals = split.value().as_object();
      const auto number = [&](const char* key) { return (long long)totals.at(key).as_int64(); };
      std::printf("%-14s %-6s %10lld %14lld %14lld", std::string(name).c_str(),
                  std::string(split.key()).c_str(), number("documents"), number("bytes"),
                  number("tokens"));
      if (const json::value* ratio = totals.if_contains("bytes_per_token"))
        std::printf(" %12.3f", ratio->as_double());
      std::printf("\n");
    }
  }
  for (const auto& [name, entry] : domains) print_lengths(std::string(name), entry);
}

/// The one named, trained, or of bytes; none for token files that come with their vocabulary.
std::unique_ptr<Tokenizer> make_tokenizer(const PrepareOptions& options,
                                          const std::vector<InputFile>& inputs,
                                          const Report& report) {
  if (options.vocabulary) return nullptr;
  if (options.train_vocab > 0) {
    const BpeTrainerOptions trainer{.vocab_size = options.train_vocab,
                                    .style = tokenizer_style(options.train_style),
                                    .eod = options.eod,
                                    .threads = options.threads};
    return train_tokenizer(inputs, options.text, trainer, options.train_bytes, report);
  }
  if (options.tokenizer.empty()) return std::make_unique<ByteTokenizer>();
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.tokenizer, options.eod);
  for (const std::string& notice : tokenizer->notices()) report(notice);
  return tokenizer;
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
  const auto report = [](const std::string& line) { std::cerr << line << '\n'; };
  const std::vector<InputFile> inputs = find_inputs(options.inputs);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(options, inputs, report);
  const TokenIds vocabulary =
      tokenizer ? TokenIds{tokenizer->vocab_size(), tokenizer->eod_id()} : *options.vocabulary;
  json::object domains;
  const std::optional<Manifest> manifest =
      options.corpus.empty() ? std::nullopt : std::optional(load_manifest(options.corpus));
  make_folder("--out", options.out);
  check_same_vocabulary(options.out, vocabulary, tokenizer ? tokenizer->json_text() : "");
  if (tokenizer) tokenizer->save(options.out);
  if (manifest) {
    if (!options.text_dir.empty()) make_folder("--keep-text", options.text_dir);
    domains = prepare_corpus(*manifest, {options.out, options.cache, options.text_dir}, *tokenizer,
                             report);
  } else {
    install_stop_signals();
    domains = prepare_inputs(options, inputs, tokenizer.get(), vocabulary);
  }
  const json::object document = write_corpus_json(options.out, vocabulary, domains);
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
