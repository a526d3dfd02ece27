#include "apps/prepare/options.h"

#include <filesystem>
#include <sstream>

#include <boost/program_options.hpp>

#include "tensor/error.h"

namespace smelt {
namespace {

namespace po = boost::program_options;

po::options_description describe_options(PrepareOptions& o, std::string& split) {
  po::options_description all("Options", 100);
  auto add = all.add_options();
  add("corpus", po::value(&o.corpus)->value_name("SIZE"),
      "prepare the offline corpus from Debian packages; SIZE is small (85 MB of text, 24 MB of "
      "download, five domains)");
  add("input", po::value(&o.inputs)->multitoken()->value_name("FILE..."),
      "prepare files of your own: plain text (one document per file) or JSON lines (.jsonl, .json, "
      "or any of them as .gz or .zst)");
  add("out", po::value(&o.out)->value_name("DIR"), "folder to write to; made if missing");
  add("domain", po::value(&o.domain)->default_value("text")->value_name("NAME"),
      "domain name of the input files");
  add("text-key", po::value(&o.text_key)->default_value("text")->value_name("KEY"),
      "key of the document's text in JSON lines");
  add("split", po::value(&split)->default_value("hash")->value_name("SPLIT"),
      "where the input's documents go: train, valid, test, or hash (95 / 2.5 / 2.5 %)");
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

}  // namespace

PrepareOptions parse_options(int argc, const char* const* argv) {
  PrepareOptions options;
  std::string split;
  const po::options_description all = describe_options(options, split);
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
  options.split = parse_split(split);
  SMELT_CHECK(ConfigError, options.corpus.empty() != options.inputs.empty(),
              "give either --corpus SIZE or --input FILE...; see smelt-prepare --help");
  SMELT_CHECK(ConfigError, !options.out.empty(), "--out: a folder is needed");
  SMELT_CHECK(ConfigError, options.text_dir.empty() || !options.corpus.empty(),
              "--keep-text: only allowed with --corpus");
  if (options.cache.empty()) {
    options.cache = (std::filesystem::path(options.out) / "packages").string();
  }
  return options;
}

std::string help_text() {
  PrepareOptions defaults;
  std::string split;
  std::ostringstream text;
  text << "smelt-prepare: text to token files for training and evaluation\n\n"
          "  smelt-prepare --corpus small --out DIR\n"
          "  smelt-prepare --input FILE... --domain NAME --out DIR\n\n"
          "Writes DIR/<domain>.<train|valid|test>.bin and .idx (Megatron-LM indexed dataset),\n"
          "DIR/tokenizer.json (256 bytes and an end-of-document id) and DIR/corpus.json (sizes,\n"
          "sources). The split of a document depends on its name only. Exit codes: 0 done,\n"
          "2 bad options or input, 1 anything else.\n\n"
       << describe_options(defaults, split);
  return text.str();
}

}  // namespace smelt
