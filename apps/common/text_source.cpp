#include "apps/common/text_source.h"

#include <algorithm>
#include <string_view>

#include <boost/json.hpp>

#include "tensor/error.h"

namespace smelt {
namespace {

namespace json = boost::json;

constexpr size_t kReadBytes = size_t{1} << 20;

int hex_value(std::string_view text, size_t at) {
  int value = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const char c = i < text.size() ? text[i] : '\0';
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// Replaces escapes of surrogates that have no partner (Python writes them, JSON parsers refuse
// them) by that of U+FFFD. `line` keeps its length.
void mend_surrogates(std::string& line) {
  const auto surrogate = [&](size_t at, int first) {
    if (at + 6 > line.size() || line[at] != '\\' || line[at + 1] != 'u') return false;
    const int code = hex_value(line, at + 2);
    return code >= first && code < first + 0x400;
  };
  for (size_t at = line.find('\\'); at != std::string::npos; at = line.find('\\', at)) {
    const bool high = surrogate(at, 0xD800), low = surrogate(at, 0xDC00);
    if (high && surrogate(at + 6, 0xDC00)) {
      at += 12;
    } else if (high || low) {
      line.replace(at, 6, "\\ufffd");
      at += 6;
    } else {
      at += 2;  // the escaped character is not a backslash that starts an escape
    }
    if (at >= line.size()) break;
  }
}

}  // namespace

bool is_json_lines(const std::string& path) {
  std::string_view name = path;
  for (const std::string_view end : {".gz", ".zst", ".zstd"}) {
    if (name.ends_with(end)) {
      name.remove_suffix(end.size());
      break;
    }
  }
  return name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json");
}

RecordReader::RecordReader(const std::string& path, const TextOptions& options)
    : path_(path == "-" ? "standard input" : path),
      options_(options),
      source_(path),
      buffer_(kReadBytes) {
  fill();
  json_ = options.format == TextFormat::json_lines ||
          (options.format == TextFormat::automatic &&
           (path == "-" ? pending_.starts_with('{') : is_json_lines(path)));
  mark_ = json_ ? "\n" : options.separator;
  if (json_ && pending_.starts_with("\xEF\xBB\xBF")) begin_ = searched_ = 3;
}

void RecordReader::fill() {
  pending_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  const size_t count = source_.read(buffer_);
  pending_.append(buffer_.data(), count);
  at_end_ = count < buffer_.size();
}

/// The bytes up to the next mark, or to the end; false where nothing is left.
bool RecordReader::next_part(std::string& part) {
  while (true) {
    const size_t end = mark_.empty() ? std::string::npos : pending_.find(mark_, searched_);
    const size_t length = (end == std::string::npos ? pending_.size() : end) - begin_;
    // Checked while a record grows, so that none can fill the memory.
    SMELT_CHECK(IoError, length <= static_cast<size_t>(options_.max_record_bytes),
                path_ << ':' << number_ + 1 << ": the " << (json_ ? "line" : "document")
                      << " is longer than " << options_.max_record_bytes << " bytes");
    if (end != std::string::npos) {
      part.assign(pending_, begin_, length);
      begin_ = searched_ = end + mark_.size();
      return true;
    }
    if (at_end_) {
      part.assign(pending_, begin_, length);
      begin_ = searched_ = pending_.size();
      return length > 0;
    }
    // The mark may begin in what is here and end in what comes.
    searched_ = std::max(searched_, pending_.size() - std::min(pending_.size(), mark_.size()));
    fill();
  }
}

bool RecordReader::next(TextRecord& record) {
  record.json = json_;
  while (next_part(record.bytes)) {
    record.number = ++number_;
    const bool blank =
        json_ ? record.bytes.find_first_not_of(" \t\r") == std::string::npos : record.bytes.empty();
    if (!blank) return true;
  }
  SMELT_CHECK(IoError, json_ || number_ > 0, path_ << ": the file is empty");
  return false;
}

std::optional<std::string> parse_record(TextRecord record, const std::string& path,
                                        const TextOptions& options) {
  if (!record.json) return std::move(record.bytes);
  const auto place = [&] { return path + ':' + std::to_string(record.number) + ": "; };
  mend_surrogates(record.bytes);
  json::error_code error;
  const json::value value = json::parse(record.bytes, error);
  SMELT_CHECK(IoError, !error, place() << "not valid JSON: " << error.message());
  SMELT_CHECK(IoError, value.is_object(), place() << "expected a JSON object");
  const auto* text = value.as_object().if_contains(options.text_key);
  SMELT_CHECK(IoError, text && text->is_string(),
              place() << "the key '" << options.text_key << "' "
                      << (text ? "is not a string" : "is missing"));
  if (text->as_string().empty()) return std::nullopt;
  return std::string(text->as_string());
}

TextSummary read_documents(const std::string& path, const TextOptions& options,
                           const DocumentSink& sink) {
  RecordReader reader(path, options);
  TextSummary summary;
  TextRecord record;
  while (reader.next(record)) {
    const int64_t number = record.number;
    if (auto text = parse_record(std::move(record), path, options)) {
      ++summary.documents;
      sink(std::move(*text), number);
    } else {
      ++summary.empty;
    }
  }
  return summary;
}

}  // namespace smelt
