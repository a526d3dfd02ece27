#include "apps/common/cli.h"

#include <algorithm>
#include <iostream>
#include <new>
#include <sstream>

#include <boost/program_options.hpp>
#include <boost/version.hpp>

#include "apps/common/config_schema.h"

namespace smelt {
namespace {

namespace po = boost::program_options;

constexpr size_t kColumns = 100;
constexpr size_t kHelpColumn = 38;

FailureHooks& failure_hooks() {
  static FailureHooks hooks;
  return hooks;
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

// "  --name=UNIT" and the help text beside it, wrapped.
void add_help_line(const std::string& left, const std::string& text, std::string* out) {
  std::string line = "  " + left;
  if (line.size() + 2 > kHelpColumn) {
    *out += line + "\n";
    line.clear();
  }
  line.resize(kHelpColumn, ' ');
  std::istringstream words(text);
  bool fresh = true;
  for (std::string word; words >> word;) {
    if (!fresh && line.size() + 1 + word.size() > kColumns) {
      *out += line + "\n";
      line.assign(kHelpColumn, ' ');
      fresh = true;
    }
    line += (fresh ? "" : " ") + word;
    fresh = false;
  }
  *out += line + "\n";
}

std::string with_default(const std::string& help, const std::string& value,
                         const std::string& unit) {
  if (value.empty()) return help;
  return help + " [" + value + (unit.empty() ? "" : " " + unit) + "]";
}

bool has_section(const OptionTable& table, const std::string& section) {
  const auto& sections = table.sections();
  return std::find(sections.begin(), sections.end(), section) != sections.end();
}

std::string unknown_option_hint(const OptionTable& table, const std::string& word) {
  if (word.find('.') != std::string::npos && table.takes_config()) {
    const ConfigKey* known = find_config_key(word);
    if (known != nullptr)
      return "; smelt-" + table.program() + " takes no keys of [" + known->section +
             "] on its command line";
    return config_key_hint(word);
  }
  std::vector<std::string> names = {"help", "version"};
  for (const Option& option : table.options()) names.push_back(option.name);
  const std::string nearest = nearest_name(word, names);
  if (!nearest.empty()) return "; did you mean --" + nearest + "?";
  const std::string key_hint = table.takes_config() ? config_key_hint(word) : "";
  return key_hint.empty() ? "; --help lists the options" : key_hint;
}

std::string range_text(const Option& option) {
  const bool whole = option.kind == Option::Kind::integer;
  const auto bound = [&](double value) {
    return whole ? std::to_string(static_cast<int64_t>(value)) : number_text(value);
  };
  return (whole ? "a whole number from " : "a number from ") + bound(option.low) + " to " +
         bound(option.high);
}

// Checks one value of a program's own option.
void check_value(const Option& option, const std::string& value) {
  const std::string given = "--" + option.name + "=" + value + ": must be ";
  switch (option.kind) {
    case Option::Kind::integer: {
      int64_t number = 0;
      SMELT_CHECK(ConfigError,
                  parse_integer(value, &number) && double(number) >= option.low &&
                      double(number) <= option.high,
                  given << range_text(option));
      break;
    }
    case Option::Kind::number: {
      double number = 0;
      SMELT_CHECK(ConfigError,
                  parse_number(value, &number) && number >= option.low && number <= option.high,
                  given << range_text(option));
      break;
    }
    case Option::Kind::word: {
      std::string allowed;
      for (const std::string& word : option.words) allowed += (allowed.empty() ? "" : "|") + word;
      SMELT_CHECK(ConfigError,
                  std::find(option.words.begin(), option.words.end(), value) != option.words.end(),
                  given << allowed);
      break;
    }
    case Option::Kind::text:
      SMELT_CHECK(ConfigError, !option.required || !value.empty(), given << "not empty");
      break;
    case Option::Kind::list:
    case Option::Kind::flag:
      break;
  }
}

po::options_description describe(const OptionTable& table) {
  po::options_description description;
  for (const Option& option : table.options()) {
    if (option.kind == Option::Kind::flag)
      description.add_options()(option.name.c_str(), "");
    else
      description.add_options()(option.name.c_str(), po::value<std::string>());
  }
  for (const ConfigKey& key : config_schema())
    if (has_section(table, key.section))
      description.add_options()(key.name().c_str(), po::value<std::string>());
  return description;
}

}  // namespace

OptionTable::OptionTable(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {
  flag("json", "print one JSON document on stdout; everything else goes to stderr");
}

OptionTable& OptionTable::add(Option option) {
  SMELT_CHECK(ConfigError, find(option.name) == nullptr,
              "option --" << option.name << " is declared twice");
  options_.push_back(std::move(option));
  return *this;
}

OptionTable& OptionTable::flag(const std::string& name, const std::string& help) {
  Option option;
  option.name = name;
  option.help = help;
  return add(option);
}

OptionTable& OptionTable::text(const std::string& name, const std::string& default_value,
                               const std::string& unit, const std::string& help) {
  Option option;
  option.name = name;
  option.kind = Option::Kind::text;
  option.default_value = default_value;
  option.unit = unit;
  option.help = help;
  return add(option);
}

OptionTable& OptionTable::required(const std::string& name, const std::string& unit,
                                   const std::string& help) {
  text(name, "", unit, help);
  options_.back().required = true;
  return *this;
}

OptionTable& OptionTable::word(const std::string& name, const std::string& default_value,
                               const std::vector<std::string>& words, const std::string& help) {
  Option option;
  option.name = name;
  option.kind = Option::Kind::word;
  option.default_value = default_value;
  option.words = words;
  option.help = help;
  for (const std::string& word : words) option.unit += (option.unit.empty() ? "" : "|") + word;
  return add(option);
}

OptionTable& OptionTable::integer(const std::string& name, int64_t default_value, int64_t low,
                                  int64_t high, const std::string& unit, const std::string& help) {
  Option option;
  option.name = name;
  option.kind = Option::Kind::integer;
  option.default_value = std::to_string(default_value);
  option.low = static_cast<double>(low);
  option.high = static_cast<double>(high);
  option.unit = unit;
  option.help = help;
  return add(option);
}

OptionTable& OptionTable::number(const std::string& name, double default_value, double low,
                                 double high, const std::string& unit, const std::string& help) {
  Option option;
  option.name = name;
  option.kind = Option::Kind::number;
  option.default_value = number_text(default_value);
  option.low = low;
  option.high = high;
  option.unit = unit;
  option.help = help;
  return add(option);
}

OptionTable& OptionTable::list(const std::string& name, const std::string& unit,
                               const std::string& help) {
  Option option;
  option.name = name;
  option.kind = Option::Kind::list;
  option.unit = unit;
  option.help = help;
  return add(option);
}

OptionTable& OptionTable::with_config(const std::vector<std::string>& sections) {
  takes_config_ = true;
  for (const ConfigSection& section : config_sections())
    if (sections.empty() ||
        std::find(sections.begin(), sections.end(), section.name) != sections.end())
      sections_.push_back(section.name);
  text("config", "", "FILE", "INI file with sections; options on the command line lead over it");
  if (sections.empty())
    flag("dry-run", "print the merged settings with the source of each, and stop");
  return *this;
}

const Option* OptionTable::find(const std::string& name) const {
  for (const Option& option : options_)
    if (option.name == name) return &option;
  return nullptr;
}

std::string OptionTable::help() const {
  std::string out = "usage: smelt-" + program_;
  for (const Option& option : options_)
    if (option.required) out += " --" + option.name + "=" + option.unit;
  out += takes_config_ ? " [--config FILE] [--section.key=value ...] [options]\n" : " [options]\n";
  std::string line;
  std::istringstream words(summary_);
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kColumns) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) out += line + "\n";
  out += "\nOptions [default]:\n";
  for (const Option& option : options_) {
    const bool flag = option.kind == Option::Kind::flag;
    const bool counted =
        option.kind == Option::Kind::integer || option.kind == Option::Kind::number;
    const std::string value = counted ? "N" : option.unit.empty() ? "TEXT" : option.unit;
    add_help_line("--" + option.name + (flag ? "" : "=" + value),
                  with_default(option.help + (option.required ? " (required)" : ""),
                               option.default_value, counted ? option.unit : ""),
                  &out);
  }
  add_help_line("--help", "print this text and stop", &out);
  add_help_line("--version", "print version and build, and stop", &out);
  const RunConfig defaults;
  for (const ConfigSection& section : config_sections()) {
    if (!has_section(*this, section.name)) continue;
    out += "\n[" + section.name + "] " + section.title + ":\n";
    for (const ConfigKey& key : config_schema()) {
      if (key.section != section.name) continue;
      const std::string value = key.type == "word"      ? key.allowed
                                : key.type == "integer" ? "N"
                                : key.type == "number"  ? "X"
                                : key.type == "text"    ? key.unit
                                : key.type == "list"    ? "LIST"
                                                        : key.type;
      const bool counted = key.type == "integer" || key.type == "number" || key.type == "list";
      add_help_line("--" + key.name() + "=" + value,
                    with_default(key.help, key.get(defaults), counted ? key.unit : "") +
                        (counted && key.get(defaults).empty() && !key.unit.empty()
                             ? " [none, " + key.unit + "]"
                             : ""),
                    &out);
    }
  }
  return out;
}

Arguments::Arguments(const OptionTable& table, const std::vector<std::string>& args)
    : table_(table) {
  std::vector<po::option> parsed;
  const po::options_description description = describe(table);
  try {
    namespace style = po::command_line_style;
    parsed = po::command_line_parser(args)
                 .options(description)
                 .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
                 .allow_unregistered()  // so that the message can name the nearest option
                 .run()
                 .options;
  } catch (const po::error& error) {
    throw ConfigError(std::string(error.what()) + "; --help lists the options");
  }
  for (const po::option& option : parsed) {
    const std::string word = option.original_tokens.empty() ? "" : option.original_tokens.front();
    SMELT_CHECK(ConfigError, option.position_key < 0 && !option.string_key.empty(),
                "stray word '" << one_line(word) << "': options begin with --");
    SMELT_CHECK(
        ConfigError, !option.unregistered,
        "unknown option --" << option.string_key << unknown_option_hint(table, option.string_key));
    const std::string value = option.value.empty() ? "" : option.value.front();
    const Option* own = table.find(option.string_key);
    if (own == nullptr) {
      settings_.push_back({option.string_key, value, {Origin::Kind::command_line, "", 0, ""}});
      continue;
    }
    check_value(*own, value);
    std::vector<std::string>& values = values_[own->name];
    SMELT_CHECK(ConfigError, values.empty() || own->kind == Option::Kind::list,
                "--" << own->name << " is given twice");
    values.push_back(value);
  }
  for (const Option& needed : table.options())
    SMELT_CHECK(ConfigError, !needed.required || given(needed.name),
                "--" << needed.name << "=" << needed.unit << " is required: " << needed.help);
  merge_config({},
               settings_);  // malformed values of the command line are told before files are read
}

const Option& Arguments::option(const std::string& name) const {
  const Option* found = table_.find(name);
  SMELT_CHECK(Error, found != nullptr, "smelt-" << table_.program() << " has no option --" << name);
  return *found;
}

bool Arguments::given(const std::string& name) const {
  return values_.count(option(name).name) > 0;
}

bool Arguments::flag(const std::string& name) const { return given(name); }

std::string Arguments::text(const std::string& name) const {
  return given(name) ? values_.at(name).front() : option(name).default_value;
}

int64_t Arguments::integer(const std::string& name) const {
  int64_t value = 0;
  parse_integer(text(name), &value);
  return value;
}

double Arguments::number(const std::string& name) const {
  double value = 0;
  parse_number(text(name), &value);
  return value;
}

std::vector<std::string> Arguments::list(const std::string& name) const {
  std::vector<std::string> items;
  if (!given(name)) return items;
  for (const std::string& value : values_.at(name)) {
    std::istringstream in(value);
    for (std::string item; std::getline(in, item, ',');)
      if (!item.empty()) items.push_back(item);
  }
  return items;
}

std::vector<std::string> Arguments::values(const std::string& name) const {
  return given(name) ? values_.at(name) : std::vector<std::string>{};
}

std::string Arguments::config_file() const { return table_.takes_config() ? text("config") : ""; }

LoadedConfig Arguments::config() const {
  const std::string file = config_file();
  return merge_config(file.empty() ? std::vector<Setting>{} : read_ini_file(file), settings_);
}

void set_failure_hooks(FailureHooks hooks) { failure_hooks() = std::move(hooks); }

int main_guard(int argc, char** argv, const std::string& name,
               const std::function<int(int, char**)>& body) {
  const auto failed = [&](int code, const std::string& message) {
    const FailureHooks& hooks = failure_hooks();
    if (hooks.before_message) hooks.before_message();
    std::cout.flush();
    std::cerr << "smelt-" + name + ": error: " + one_line(message) + "\n" << std::flush;
    if (hooks.abort) hooks.abort(code);
    return code;
  };
  try {
    const int code = body(argc, argv);
    if (!std::cout.flush()) return failed(1, "standard output cannot be written");
    return code;
  } catch (const QuietExit& quiet) {
    return quiet.code;
  } catch (const ConfigError& error) {
    return failed(2, error.what());
  } catch (const IoError& error) {
    return failed(2, error.what());
  } catch (const std::bad_alloc&) {
    return failed(1, "out of memory; use a smaller micro_batch or more ranks");
  } catch (const std::exception& error) {
    return failed(1, error.what());
  }
}

int run_program(int argc, char** argv, const OptionTable& table,
                const std::function<int(const Arguments&)>& body) {
  return main_guard(argc, argv, table.program(), [&](int count, char** words) {
    const std::vector<std::string> args(words + std::min(count, 1), words + count);
    const auto has = [&](const char* word) {
      return std::find(args.begin(), args.end(), word) != args.end();
    };
    if (has("--help") || has("-h")) {
      std::cout << table.help();
      return 0;
    }
    if (has("--version")) {
      std::cout << version_text() << "\n";
      return 0;
    }
    const Arguments arguments(table, args);
    if (table.find("dry-run") != nullptr && arguments.flag("dry-run")) {
      std::cout << write_ini_with_origins(arguments.config());
      return 0;
    }
    return body(arguments);
  });
}

int run_commands(int argc, char** argv, const std::vector<Command>& commands) {
  const std::string word = argc > 1 ? argv[1] : "";
  const bool is_word = !word.empty() && word.front() != '-';
  for (const Command& command : commands) {
    if (!is_word || command.word != word) continue;
    return run_program(argc - 1, argv + 1, command.table, command.body);
  }
  const Command& first = commands.front();
  const bool help = std::any_of(argv + std::min(argc, 1), argv + argc, [](const char* arg) {
    return std::string(arg) == "--help" || std::string(arg) == "-h";
  });
  std::string names;
  for (const Command& command : commands)
    if (!command.word.empty()) names += (names.empty() ? "" : ", ") + command.word;
  if (help && first.word.empty()) {
    return main_guard(argc, argv, first.table.program(), [&](int, char**) {
      std::cout << first.table.help() << "\nCommands, each with its own --help: " << names << "\n";
      return 0;
    });
  }
  if (!is_word && first.word.empty()) return run_program(argc, argv, first.table, first.body);
  const std::string program = first.table.program().substr(0, first.table.program().find(' '));
  return main_guard(argc, argv, program, [&](int, char**) -> int {
    if (help) {
      std::cout << "usage: smelt-" << program << " COMMAND [options]\nCommands, each with its own "
                << "--help: " << names << "\n";
      return 0;
    }
    std::vector<std::string> words;
    for (const Command& command : commands) words.push_back(command.word);
    const std::string nearest = is_word ? nearest_name(word, words) : "";
    throw ConfigError(
        (is_word ? "unknown command '" + word + "'" : std::string("a command is needed")) +
        (nearest.empty() ? ": must be one of " + names : "; did you mean " + nearest + "?"));
  });
}

std::string version_text() {
  std::ostringstream out;
  out << "smelt " << SMELT_VERSION << " (" << SMELT_REVISION << ", "
#if defined(__clang__)
      << "clang " << __clang_major__ << "." << __clang_minor__
#else
      << "gcc " << __GNUC__ << "." << __GNUC_MINOR__
#endif
      << ", C++" << __cplusplus / 100 % 100 << ", Boost " << BOOST_VERSION / 100000 << "."
      << BOOST_VERSION / 100 % 1000 << ")";
  return out.str();
}

}  // namespace smelt
