#include "apps/prepare/options.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <thread>

#include <boost/program_options.hpp>

#include "apps/common/tokenizer/trainer.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace po = boost::program_options;

/// Words of the command line that become something else.
struct RawOptions {
  std::string split, format, separator;
  int64_t vocab_size = 0, eod_id = -1;
};

po::options_description describe_options(PrepareOptions& o, RawOptions& raw) {
  po::options_description all("Options", 100);
  auto add = all.add_options();
  add("corpus", po::value(&o.corpus)->value_name("SIZE"),
      "prepare the offline corpus from Debian packages; SIZE is small (85 MB of text, 24 MB of "
      "download, five domains)");
  add("input", po::value(&o.inputs)->multitoken()->value_name("PATH..."),
      "prepare files of your own, folders of them, or - for standard input; gzip and zstd are "
      "recognised");
  add("out", po::value(&o.out)->value_name("DIR"), "folder to write to; made if missing");
  add("domain", po::value(&o.domain)->default_value("text")->value_name("NAME"),
      "domain name of the input files");
  add("format", po::value(&raw.format)->default_value("auto")->value_name("FORMAT"),
      "of the input: jsonl (one JSON object per line), text (one document per file), auto (jsonl "
      "for .jsonl, .ndjson and .json, or where standard input begins with '{'), or token files: "
      "megatron (PREFIX.idx), llmc, nanogpt (bare u16), u32 (bare u32)");
  add("text-key", po::value(&o.text.text_key)->default_value("text")->value_name("KEY"),
      "key of the document's text in JSON lines");
  add("separator", po::value(&raw.separator)->value_name("TEXT"),
      "what stands between the documents of a text file, e.g. '<|endoftext|>'; \\n, \\t, \\0 and "
      "\\\\ are understood");
  add("tokenizer", po::value(&o.tokenizer)->value_name("PATH"),
      "tokenizer.json or its folder (default: 256 bytes and an end-of-document id)");
  add("eod", po::value(&o.eod)->value_name("TOKEN"),
      "the tokenizer's token that ends a document (default: what its files say)");
  add("train-tokenizer", po::value(&o.train_vocab)->value_name("VOCAB"),
      "train a byte-level BPE tokenizer of VOCAB ids on the input first");
  add("tokenizer-style", po::value(&o.train_style)->default_value("qwen")->value_name("STYLE"),
      "how the trained one cuts text: gpt2, llama3 or qwen");
  add("tokenizer-bytes",
      po::value(&o.train_bytes)->default_value(int64_t{1} << 30)->value_name("BYTES"),
      "text to train on, an even sample of the input where there is more");
  add("vocab-size", po::value(&raw.vocab_size)->value_name("N"),
      "of token files for which there is no --tokenizer");
  add("eod-id", po::value(&raw.eod_id)->value_name("ID"),
      "end-of-document id of token files for which there is no --tokenizer");
  add("split", po::value(&raw.split)->default_value("hash")->value_name("SPLIT"),
      "where the documents go: train, valid, test, or hash (by the hash of their text)");
  add("holdout", po::value(&o.holdout)->default_value(0.025, "0.025")->value_name("SHARE"),
      "share of the documents that --split hash gives to valid, and as much to test");
  add("unique", po::bool_switch(&o.unique),
      "drop documents whose text came before (some 60 bytes of memory for each kept document)");
  add("max-bad", po::value(&o.max_bad)->default_value(0)->value_name("N"),
      "unreadable records to skip, with a notice, before it is an error");
  add("threads", po::value(&o.threads)->value_name("N"),
      "threads that parse and encode (default: one per core)");
  add("save-every", po::value(&o.save_every)->default_value(60, "60")->value_name("SECONDS"),
      "time between the places from which an interrupted run goes on when it is repeated");
  add("restart", po::bool_switch(&o.restart), "begin anew what an interrupted run left");
  add("cache", po::value(&o.cache)->value_name("DIR"),
      "folder for downloaded packages (default: packages inside --out)");
  add("keep-text", po::value(&o.text_dir)->value_name("DIR"),
      "also write the corpus as text, a file per package, documents ended by NUL");
  add("json", po::bool_switch(&o.json), "print one JSON document instead of a table");
  add("help,h", po::bool_switch(&o.help), "print this help");
  add("version", po::bool_switch(&o.version), "print the version");
  return all;
}

std::optional<Split> parse_split(const std::string& name) {
  if (name == "hash") return std::nullopt;
  for (size_t s = 0; s < kSplitNames.size(); ++s) {
    if (name == kSplitNames[s]) return static_cast<Split>(s);
  }
  throw ConfigError("--split: '" + name + "' is not allowed; use train, valid, test or hash");
}

void parse_format(const std::string& word, PrepareOptions& options) {
  if (word == "auto") return;
  if (word == "jsonl") {
    options.text.format = TextFormat::json_lines;
  } else if (word == "text") {
    options.text.format = TextFormat::plain;
  } else if (word == "megatron") {
    options.token_format = TokenFormat::megatron;
  } else if (word == "llmc") {
    options.token_format = TokenFormat::llmc;
  } else if (word == "nanogpt") {
    options.token_format = TokenFormat::nanogpt;
  } else if (word == "u32") {
    options.token_format = TokenFormat::bare_u32;
  } else {
    throw ConfigError("--format: '" + word +
                      "' is not allowed; use auto, jsonl, text, megatron, llmc, nanogpt or u32");
  }
}

std::string unescape(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    const char next = ++i < text.size() ? text[i] : ' ';
    SMELT_CHECK(ConfigError, std::string_view("nt0\\").find(next) != std::string_view::npos,
                "--separator: '" << text << "': after a backslash n, t, 0 or \\ must follow");
    result += next == 'n' ? '\n' : next == 't' ? '\t' : next == '0' ? '\0' : '\\';
  }
  return result;
}

void parse_vocabulary(const RawOptions& raw, PrepareOptions& options) {
  const bool given = raw.vocab_size != 0 || raw.eod_id != -1;
  SMELT_CHECK(ConfigError, !given || (options.token_format && options.tokenizer.empty()),
              "--vocab-size, --eod-id: only for token files (--format) without --tokenizer");
  SMELT_CHECK(ConfigError, !options.token_format || given || !options.tokenizer.empty(),
              "--format: token files need --tokenizer, or --vocab-size and --eod-id");
  if (!given) return;
  SMELT_CHECK(ConfigError, raw.vocab_size >= 1 && raw.vocab_size <= int64_t{1} << 31,
              "--vocab-size: " << raw.vocab_size << " must be from 1 to 2147483648");
  SMELT_CHECK(ConfigError, raw.eod_id >= 0 && raw.eod_id < raw.vocab_size,
              "--eod-id: " << raw.eod_id << " must be from 0 to " << raw.vocab_size - 1);
  options.vocabulary = {raw.vocab_size, static_cast<int32_t>(raw.eod_id)};
}

}  // namespace

PrepareOptions parse_options(int argc, const char* const* argv) {
  PrepareOptions options;
  options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  RawOptions raw;
  const po::options_description all = describe_options(options, raw);
  try {
    po::variables_map values;
    const po::positional_options_description none;
    po::store(
        po::command_line_parser(argc, argv)
            .options(all)
            .positional(none)
            .style(po::command_line_style::unix_style ^ po::command_line_style::allow_guessing)
            .run(),
        values);
    po::notify(values);
  } catch (const po::error& e) {
    throw ConfigError(std::string(e.what()) + "; see smelt-prepare --help");
  }
  if (options.help || options.version) return options;
  options.split = parse_split(raw.split);
  parse_format(raw.format, options);
  options.text.separator = unescape(raw.separator);
  SMELT_CHECK(ConfigError, options.corpus.empty() != options.inputs.empty(),
              "give either --corpus SIZE or --input PATH...; see smelt-prepare --help");
  SMELT_CHECK(ConfigError, !options.out.empty(), "--out: a folder is needed");
  SMELT_CHECK(ConfigError, options.text_dir.empty() || !options.corpus.empty(),
              "--keep-text: only allowed with --corpus");
  SMELT_CHECK(ConfigError,
              options.train_vocab == 0 ||
                  (options.tokenizer.empty() && !options.inputs.empty() && !options.token_format),
              "--train-tokenizer: only with --input of text, and without --tokenizer");
  SMELT_CHECK(ConfigError, options.train_bytes >= 1,
              "--tokenizer-bytes: " << options.train_bytes << " must be at least 1");
  tokenizer_style(options.train_style);  // throws for an unknown one
  SMELT_CHECK(ConfigError, raw.separator.empty() || options.text.format == TextFormat::plain,
              "--separator: only allowed with --format text");
  SMELT_CHECK(ConfigError, options.holdout >= 0 && options.holdout <= 0.5,
              "--holdout: " << options.holdout << " must be from 0 to 0.5");
  SMELT_CHECK(ConfigError, options.threads >= 1 && options.threads <= 1024,
              "--threads: " << options.threads << " must be from 1 to 1024");
  SMELT_CHECK(ConfigError, options.max_bad >= 0,
              "--max-bad: " << options.max_bad << " must not be negative");
  SMELT_CHECK(ConfigError, options.save_every >= 0,
              "--save-every: " << options.save_every << " must not be negative");
  parse_vocabulary(raw, options);
  if (options.cache.empty()) {
    options.cache = (std::filesystem::path(options.out) / "packages").string();
  }
  return options;
}

std::string help_text() {
  PrepareOptions defaults;
  RawOptions raw;
  std::ostringstream text;
  text << "smelt-prepare: text to token files for training and evaluation\n\n"
          "  smelt-prepare --corpus small --out DIR\n"
          "  smelt-prepare --input PATH... --domain NAME --out DIR [--tokenizer PATH | "
          "--train-tokenizer VOCAB]\n"
          "  zcat dump.gz | smelt-prepare --input - --format jsonl --domain web --out DIR\n"
          "  smelt-prepare --input shards/ --format llmc --vocab-size 50257 --eod-id 50256 --out "
          "DIR\n\n"
          "Writes DIR/<domain>.<train|valid|test>.bin and .idx (Megatron-LM indexed dataset, one\n"
          "sequence per document, each ended by the end-of-document id), DIR/tokenizer.json and\n"
          "DIR/corpus.json (documents, tokens, bytes per token, lengths). The order of documents "
          "is\n"
          "that of the input, whatever the threads. An interrupted run goes on when the same "
          "command\n"
          "is given again. Exit codes: 0 done, 2 bad options or input, 1 anything else.\n\n"
       << describe_options(defaults, raw);
  return text.str();
}

}  // namespace smelt
