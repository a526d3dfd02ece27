#include "apps/common/config.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <sstream>

#include <boost/program_options.hpp>

#include "apps/common/config_schema.h"
#include "apps/common/run_folder.h"

namespace smelt {
namespace {

namespace po = boost::program_options;

// A piece of a damaged file as it may stand in a message: one line, printable, short.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text.substr(0, 60))
    out += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  return out + (text.size() > 60 ? "...'" : "'");
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string section_list() {
  std::string list;
  for (const ConfigSection& section : config_sections())
    list += (list.empty() ? "[" : " [") + section.name + "]";
  return list;
}

bool is_section(const std::string& name) {
  return std::any_of(config_sections().begin(), config_sections().end(),
                     [&](const ConfigSection& section) { return section.name == name; });
}

// Boost's parser does not tell lines. This pass checks what it would accept silently or report
// without a place, and returns the line of each key = value in order.
std::vector<int> setting_lines(const std::string& text, const std::string& name) {
  std::vector<int> lines;
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string content = trimmed(line.substr(0, line.find('#')));
    if (content.empty()) continue;
    if (content.front() == '[') {
      const std::string section =
          content.back() == ']' ? content.substr(1, content.size() - 2) : "";
      SMELT_CHECK(ConfigError, is_section(section),
                  name << ":" << number << ": unknown section " << quoted(content)
                       << "; sections are " << section_list());
      continue;
    }
    const size_t equals = content.find('=');
    SMELT_CHECK(ConfigError, equals != std::string::npos && equals > 0,
                name << ":" << number << ": " << quoted(content)
                     << " is neither a [section] nor key = value");
    lines.push_back(number);
  }
  return lines;
}

const po::options_description& known_keys() {
  static const po::options_description description = [] {
    po::options_description made;
    for (const ConfigKey& key : config_schema())
      made.add_options()(key.name().c_str(), po::value<std::string>());
    return made;
  }();
  return description;
}

// "nano.ini:12: [optim] lr = 3" or "--optim.lr=3".
std::string place(const Setting& setting) {
  if (setting.origin.kind == Origin::Kind::command_line)
    return "--" + setting.key + "=" + setting.value;
  const size_t dot = setting.key.find('.');
  return setting.origin.text() + ": [" + setting.key.substr(0, dot) + "] " +
         setting.key.substr(dot + 1) + " = " + setting.value;
}

// The settings of one source by key, refusing what is unknown or given twice.
std::map<std::string, std::vector<Setting>> by_key(const std::vector<Setting>& settings) {
  std::map<std::string, std::vector<Setting>> grouped;
  for (const Setting& setting : settings) {
    const ConfigKey* key = find_config_key(setting.key);
    const bool file = setting.origin.kind == Origin::Kind::file;
    SMELT_CHECK(ConfigError, key != nullptr,
                (file ? setting.origin.text() + ": unknown key " : "unknown option --")
                    << setting.key << config_key_hint(setting.key));
    std::vector<Setting>& earlier = grouped[setting.key];
    if (!earlier.empty() && !key->repeats) {
      const std::string before =
          file ? "first on line " + std::to_string(earlier.front().origin.line)
               : "first as --" + setting.key + "=" + earlier.front().value;
      throw ConfigError(place(setting) + ": given twice, " + before);
    }
    earlier.push_back(setting);
  }
  return grouped;
}

void resolve_automatic(LoadedConfig* loaded) {
  RunConfig& config = loaded->config;
  const int64_t length = config.optim.branch_tokens.empty()
                             ? config.train.tokens
                             : std::min(config.train.tokens, config.optim.branch_tokens.front());
  const std::string base =
      config.optim.branch_tokens.empty() ? "train.tokens" : "the first of branch_tokens";
  if (config.optim.warmup_tokens < 0) {
    config.optim.warmup_tokens = length / 50;
    loaded->origins["optim.warmup_tokens"] = {Origin::Kind::derived, "", 0, "2 % of " + base};
  }
  if (config.optim.decay_tokens < 0) {
    const bool wsd = config.optim.schedule == Schedule::wsd;
    config.optim.decay_tokens = wsd ? length / 5 : 0;
    loaded->origins["optim.decay_tokens"] = {Origin::Kind::derived, "", 0,
                                             wsd ? "20 % of " + base : "only wsd decays"};
  }
}

}  // namespace

std::string Origin::text() const {
  switch (kind) {
    case Kind::default_value:
      return "default";
    case Kind::derived:
      return "derived: " + rule;
    case Kind::file:
      return file + ":" + std::to_string(line);
    case Kind::command_line:
      return "command line";
  }
  return "";
}

std::vector<Setting> read_ini_text(const std::string& text, const std::string& name) {
  const std::vector<int> lines = setting_lines(text, name);
  std::istringstream in(text);
  std::vector<Setting> settings;
  try {
    const auto parsed = po::parse_config_file(in, known_keys(), /*allow_unregistered=*/true);
    for (const po::option& option : parsed.options) {
      const int line = settings.size() < lines.size() ? lines[settings.size()] : 0;
      settings.push_back({option.string_key, option.value.empty() ? "" : option.value.front(),
                          Origin{Origin::Kind::file, name, line, ""}});
    }
  } catch (const po::error& error) {
    throw ConfigError(name + ": " + error.what());
  }
  SMELT_CHECK(ConfigError, settings.size() == lines.size(),
              name << ": " << lines.size() << " settings stand in the file but " << settings.size()
                   << " were read");
  by_key(settings);
  return settings;
}

std::vector<Setting> read_ini_file(const std::string& path) {
  return read_ini_text(read_text_file(path), path);
}

LoadedConfig merge_config(const std::vector<Setting>& file_settings,
                          const std::vector<Setting>& command_line_settings) {
  const auto from_file = by_key(file_settings);
  const auto from_command_line = by_key(command_line_settings);
  LoadedConfig loaded;
  for (const ConfigKey& key : config_schema()) {
    const auto command_line = from_command_line.find(key.name());
    const auto file = from_file.find(key.name());
    loaded.origins[key.name()] = Origin{};
    // A value of the file is checked even when the command line replaces it: the file is wrong.
    for (const auto& [found, last] :
         {std::pair{file, from_file.end()}, std::pair{command_line, from_command_line.end()}}) {
      if (found == last) continue;
      std::string joined;
      for (const Setting& setting : found->second) {
        SMELT_CHECK(ConfigError, key.set(loaded.config, setting.value),
                    place(setting) << ": must be " << key.allowed);
        joined += (joined.empty() ? "" : ", ") + setting.value;
      }
      if (found->second.size() > 1) key.set(loaded.config, joined);
      loaded.origins[key.name()] = found->second.front().origin;
    }
  }
  resolve_automatic(&loaded);
  return loaded;
}

LoadedConfig load_config(const std::string& ini_path, const std::vector<std::string>& overrides) {
  std::vector<Setting> settings;
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    SMELT_CHECK(ConfigError, equals != std::string::npos,
                "override " << quoted(text) << " must be section.key=value");
    settings.push_back({text.substr(0, equals), text.substr(equals + 1),
                        Origin{Origin::Kind::command_line, "", 0, ""}});
  }
  return merge_config(ini_path.empty() ? std::vector<Setting>{} : read_ini_file(ini_path),
                      settings);
}

RunConfig parse_config(const std::string& ini_text, const std::string& name) {
  return merge_config(read_ini_text(ini_text, name), {}).config;
}

namespace {

// note gives the comment behind a key's line, empty for none, or nothing to leave the key out.
std::string ini_text(const RunConfig& config,
                     const std::function<std::optional<std::string>(const ConfigKey&)>& note) {
  std::ostringstream out;
  for (const ConfigSection& section : config_sections()) {
    bool titled = false;
    for (const ConfigKey& key : config_schema()) {
      const std::optional<std::string> comment =
          key.section == section.name ? note(key) : std::nullopt;
      if (!comment) continue;
      if (!titled) out << (out.tellp() > 0 ? "\n" : "") << "[" << section.name << "]\n";
      titled = true;
      std::string line = key.key + " = " + key.get(config);
      if (line.back() == ' ') line.pop_back();
      if (!comment->empty()) {
        line.resize(std::max<size_t>(line.size() + 2, 36), ' ');
        line += "# " + *comment;
      }
      out << line << "\n";
    }
  }
  return out.str();
}

}  // namespace

std::string write_ini(const RunConfig& config) {
  return ini_text(config, [](const ConfigKey&) { return std::optional<std::string>(""); });
}

std::string write_ini(const RunConfig& config, const std::set<std::string>& keys) {
  return ini_text(config, [&](const ConfigKey& key) {
    return keys.count(key.name()) > 0 ? std::optional<std::string>("") : std::nullopt;
  });
}

std::string write_ini_with_origins(const LoadedConfig& loaded) {
  return ini_text(loaded.config, [&](const ConfigKey& key) {
    const auto origin = loaded.origins.find(key.name());
    return std::optional<std::string>(origin == loaded.origins.end() ? "" : origin->second.text());
  });
}

std::vector<ConfigDifference> config_differences(const RunConfig& before, const RunConfig& after) {
  std::vector<ConfigDifference> differences;
  for (const ConfigKey& key : config_schema()) {
    const std::string old_text = key.get(before);
    const std::string new_text = key.get(after);
    if (old_text != new_text) differences.push_back({key.name(), old_text, new_text});
  }
  return differences;
}

const char* to_text(QkNorm value) {
  switch (value) {
    case QkNorm::none:
      return "false";
    case QkNorm::head:
      return "true";
    case QkNorm::projection:
      return "projection";
  }
  return "";
}
const char* to_text(LoopOrder value) { return value == LoopOrder::span ? "span" : "layer"; }
const char* to_text(LoopKv value) { return value == LoopKv::own ? "own" : "first"; }
const char* to_text(AuxScope value) { return value == AuxScope::sequence ? "sequence" : "batch"; }
const char* to_text(DeviceKind value) { return value == DeviceKind::cpu ? "cpu" : "cuda"; }
const char* to_text(Balance value) {
  switch (value) {
    case Balance::aux:
      return "aux";
    case Balance::bias:
      return "bias";
    case Balance::none:
      return "none";
  }
  return "";
}
const char* to_text(Schedule value) {
  switch (value) {
    case Schedule::wsd:
      return "wsd";
    case Schedule::cosine:
      return "cosine";
    case Schedule::constant:
      return "constant";
  }
  return "";
}
const char* to_text(DType value) { return name_of(value).data(); }  // a literal

}  // namespace smelt
