#include "apps/common/metrics.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/common/exact_json.h"
#include "apps/common/output_file.h"
#include "apps/common/run_folder.h"
#include "tensor/error.h"

namespace smelt {
namespace json = boost::json;
namespace {

// A copy in which numbers that JSON cannot hold are null.
json::value representable(const json::value& value) {
  switch (value.kind()) {
    case json::kind::double_:
      return number_or_null(value.get_double());
    case json::kind::array: {
      json::array items;
      for (const json::value& item : value.get_array()) items.push_back(representable(item));
      return items;
    }
    case json::kind::object: {
      json::object members;
      for (const auto& member : value.get_object())
        members[member.key()] = representable(member.value());
      return members;
    }
    default:
      return value;
  }
}

// The file's lines that end with a newline.
std::vector<std::string> whole_lines(const std::string& path) {
  std::istringstream in(read_text_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (in.eof()) break;  // no newline behind it: cut off by a kill
    lines.push_back(line);
  }
  return lines;
}

json::object parse_line(const std::string& path, size_t number, const std::string& line) {
  json::error_code error;
  const json::value value = parse_json(line, error);
  SMELT_CHECK(IoError, !error && value.is_object(),
              path << ":" << number << ": must be a JSON object"
                   << (error ? ": " + error.message() : std::string()));
  return value.get_object();
}

}  // namespace

json::value number_or_null(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

std::string json_line(const json::value& value) { return json::serialize(representable(value)); }

void MetricsWriter::write(const json::object& line) { file_.append(json_line(line) + "\n"); }

std::vector<json::object> read_jsonl(const std::string& path) {
  std::vector<json::object> objects;
  const std::vector<std::string> lines = whole_lines(path);
  for (size_t i = 0; i < lines.size(); ++i) objects.push_back(parse_line(path, i + 1, lines[i]));
  return objects;
}

int64_t truncate_metrics(const std::string& path, int64_t last_step,
                         const std::function<bool(const json::object&)>& keep) {
  if (!std::filesystem::exists(path)) return 0;
  const std::string before = read_text_file(path);
  const std::vector<std::string> lines = whole_lines(path);
  std::string kept;
  int64_t dropped = before.empty() || before.back() == '\n' ? 0 : 1;
  for (size_t i = 0; i < lines.size(); ++i) {
    const json::object line = parse_line(path, i + 1, lines[i]);
    const json::value* step = line.if_contains("step");
    SMELT_CHECK(IoError, step != nullptr && step->is_int64(),
                path << ":" << i + 1 << ": \"step\" must be a whole number");
    if (step->get_int64() <= last_step || (keep && keep(line)))
      kept += lines[i] + "\n";
    else
      ++dropped;
  }
  if (dropped > 0) write_file(path, kept);
  return dropped;
}

void append_jsonl(const std::string& path, const json::object& line) {
  MetricsWriter(path).write(line);
}

MemoryUse memory_use() {
  MemoryUse use;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream fields(line);
    std::string name;
    int64_t kibibytes = 0;
    if (!(fields >> name >> kibibytes)) continue;
    if (name == "VmRSS:") use.current_bytes = kibibytes * 1024;
    if (name == "VmHWM:") use.peak_bytes = kibibytes * 1024;
  }
  return use;
}

}  // namespace smelt
