// What every program shares: a table of its own options on top of the configuration keys, --help,
// --version, --json, and one place that turns errors into one line and an exit code.
//
//   int main(int argc, char** argv) {
//     smelt::OptionTable options("plan", "Budgets of a configuration.");
//     options.with_config({"model", "loop"});
//     options.number("mean-context", 0, 0, 1e9, "tokens", "mean attended positions; 0: seq_len /
//     2"); return smelt::run_program(argc, argv, options, [](const smelt::Arguments& arguments) {
//       const smelt::LoadedConfig loaded = arguments.config();
//       ...
//       return 0;
//     });
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/common/config.h"

namespace smelt {

/// One option of a program; made by the functions of OptionTable.
struct Option {
  enum class Kind { flag, text, word, integer, number, list };
  std::string name;  // without the dashes
  Kind kind = Kind::flag;
  std::string default_value;
  std::string unit;  // what stands for the value in --help: FILE, DIR, tokens, ...
  std::string help;
  bool required = false;
  std::vector<std::string> words;  // Kind::word
  double low = 0;                  // Kind::integer, Kind::number
  double high = 0;
};

class OptionTable {
 public:
  /// @param program  NAME of smelt-NAME; with a command, "NAME COMMAND"
  /// @param summary  one or a few sentences for the top of --help
  OptionTable(std::string program, std::string summary);

  OptionTable& flag(const std::string& name, const std::string& help);
  OptionTable& text(const std::string& name, const std::string& default_value,
                    const std::string& unit, const std::string& help);
  /// A text option that must be given.
  OptionTable& required(const std::string& name, const std::string& unit, const std::string& help);
  OptionTable& word(const std::string& name, const std::string& default_value,
                    const std::vector<std::string>& words, const std::string& help);
  OptionTable& integer(const std::string& name, int64_t default_value, int64_t low, int64_t high,
                       const std::string& unit, const std::string& help);
  OptionTable& number(const std::string& name, double default_value, double low, double high,
                      const std::string& unit, const std::string& help);
  /// Comma-separated, or given several times.
  OptionTable& list(const std::string& name, const std::string& unit, const std::string& help);
  /// Takes --config FILE and the keys of these sections (none named: all) as --section.key. A file
  /// may hold every section; --dry-run is added when all sections are taken.
  OptionTable& with_config(const std::vector<std::string>& sections = {});

  const std::string& program() const { return program_; }
  const std::vector<Option>& options() const { return options_; }
  bool takes_config() const { return takes_config_; }
  /// The configuration sections whose keys are options.
  const std::vector<std::string>& sections() const { return sections_; }
  const Option* find(const std::string& name) const;
  /// The text of --help, no line longer than 100 columns.
  std::string help() const;

 private:
  OptionTable& add(Option option);

  std::string program_;
  std::string summary_;
  std::vector<Option> options_;
  std::vector<std::string> sections_;
  bool takes_config_ = false;
};

/// A parsed command line.
class Arguments {
 public:
  /// Parses args (without the program's name). @throws ConfigError for an unknown option (with the
  /// nearest name), a stray word, a missing or malformed value, or an option given twice.
  Arguments(const OptionTable& table, const std::vector<std::string>& args);

  /// Whether the option stands on the command line.
  bool given(const std::string& name) const;
  bool flag(const std::string& name) const;
  std::string text(const std::string& name) const;
  int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  std::vector<std::string> list(const std::string& name) const;
  /// The values of a list option as they were given, not split at commas.
  std::vector<std::string> values(const std::string& name) const;

  /// --json: print one JSON document on stdout, everything else on stderr.
  bool json() const { return flag("json"); }
  /// --config FILE, or empty.
  std::string config_file() const;
  /// The settings given as --section.key.
  const std::vector<Setting>& config_settings() const { return settings_; }
  /// Reads --config FILE and merges it with the command line; not yet validated.
  LoadedConfig config() const;

 private:
  const Option& option(const std::string& name) const;

  OptionTable table_;
  std::map<std::string, std::vector<std::string>> values_;
  std::vector<Setting> settings_;
};

/// Runs body with the parsed command line. Answers --help and --version (exit code 0) before any
/// file is opened; errors end as in main_guard.
int run_program(int argc, char** argv, const OptionTable& table,
                const std::function<int(const Arguments&)>& body);

/// A program with commands (smelt-plan match): the first word chooses; no word runs the first
/// command, whose word is empty.
struct Command {
  std::string word;
  OptionTable table;
  std::function<int(const Arguments&)> body;
};
int run_commands(int argc, char** argv, const std::vector<Command>& commands);

/// Calls body and turns what it throws into one line "smelt-NAME: error: ..." on stderr and an exit
/// code: 2 for ConfigError and IoError, 1 for everything else. Output that cannot be written
/// (stdout closed or full) is an error too.
int main_guard(int argc, char** argv, const std::string& name,
               const std::function<int(int, char**)>& body);

/// Thrown to leave with a code and no message, e.g. by a rank that was told of another's error.
struct QuietExit {
  int code = 0;
};

/// Hooks for programs with several ranks. before_message runs before the line is printed (ranks
/// above 0 wait a moment there, so that an error common to all is told once); abort runs after it
/// and need not return (MPI_Abort).
struct FailureHooks {
  std::function<void()> before_message;
  std::function<void(int code)> abort;
};
void set_failure_hooks(FailureHooks hooks);

/// "smelt 0.1.0 (revision, compiler, oneDNN, MPI, ...)": the line of --version.
std::string version_text();

}  // namespace smelt
