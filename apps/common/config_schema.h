// The one table of configuration keys. Parsing, --help, config.ini and docs/configuration.md are
// all made from it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/common/config.h"

namespace smelt {

struct ConfigKey {
  std::string section;
  std::string key;
  std::string type;     // "integer", "number", "word", "true|false", "list", "text"
  std::string unit;     // "tokens", "steps", ...; may be empty
  std::string allowed;  // what a value must be, as it stands in messages
  std::string help;
  bool repeats = false;               // a list that may be given several times; values are joined
  std::vector<std::string> synonyms;  // what other programs call it, for "did you mean"
  /// The value as INI text.
  std::function<std::string(const RunConfig&)> get;
  /// Parses and stores a value; returns false when it is not one of those allowed.
  std::function<bool(RunConfig&, const std::string&)> set;

  std::string name() const { return section + "." + key; }
};

struct ConfigSection {
  std::string name;
  std::string title;
};

/// All keys, section by section, in the order of the sections.
const std::vector<ConfigKey>& config_schema();
const std::vector<ConfigSection>& config_sections();
/// The key called "section.key", or null.
const ConfigKey* find_config_key(const std::string& name);

/// The schema as a Markdown page (docs/configuration.md).
std::string config_markdown();

/// The closest of names (least edits), or empty when none is close enough to be meant.
std::string nearest_name(const std::string& word, const std::vector<std::string>& names);
/// A hint such as "; did you mean [train] seq_len?" for an unknown "section.key", or empty.
std::string config_key_hint(const std::string& name);

/// Strict parsers: the whole text must be the number; no sign other than '-', no nan, no inf.
bool parse_integer(const std::string& text, int64_t* value);
bool parse_number(const std::string& text, double* value);
/// The shortest text that reads back to the same number.
std::string number_text(double value);

}  // namespace smelt
