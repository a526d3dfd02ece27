#include "apps/common/safetensors_format.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string_view.hpp>

namespace smelt::safetensors {
namespace json = boost::json;
namespace {

constexpr FileDType kDTypes[] = {
    {"BOOL", 8, {}},         {"F4", 4, {}},           {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},      {"U8", 8, {}},           {"I8", 8, {}},
    {"F8_E5M2", 8, {}},      {"F8_E4M3", 8, {}},      {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},  {"F8_E5M2FNUZ", 8, {}},  {"I16", 16, {}},
    {"U16", 16, {}},         {"F16", 16, DType::f32}, {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32}, {"U32", 32, {}},         {"F32", 32, DType::f32},
    {"C64", 64, {}},         {"F64", 64, DType::f64}, {"I64", 64, DType::i64},
    {"U64", 64, {}}};

std::string json_string(std::string_view text) {
  return json::serialize(json::string_view(text.data(), text.size()));
}

/// Base of the two handlers below: what Boost's parser reports, with strings put together from
/// their parts and every number that is not a plain non-negative integer refused. Objects are
/// watched for keys that occur twice, which a JSON tree would keep silent about.
template <typename Handler>
class StrictHandler {
 public:
  static constexpr size_t max_object_size = size_t(-1);
  static constexpr size_t max_array_size = size_t(-1);
  static constexpr size_t max_key_size = size_t(-1);
  static constexpr size_t max_string_size = size_t(-1);

  explicit StrictHandler(const std::string& file) : file_(file) {}

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    self().begin_object();
    path_.emplace_back();
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(size_t, json::error_code&) {
    path_.pop_back();
    keys_.pop_back();
    self().end_object();
    return true;
  }
  bool on_array_begin(json::error_code&) {
    self().begin_array();
    path_.emplace_back();
    keys_.emplace_back();
    return true;
  }
  bool on_array_end(size_t, json::error_code&) {
    path_.pop_back();
    keys_.pop_back();
    return true;
  }
  bool on_key_part(json::string_view part, size_t, json::error_code&) { return append(part); }
  bool on_key(json::string_view part, size_t, json::error_code&) {
    append(part);
    SMELT_CHECK(IoError, keys_.back().insert(text_).second,
                file_ << ": key " << in_quotes(text_) << " occurs twice" << where()
                      << "; keys must differ");
    path_.back() = std::exchange(text_, {});
    self().key();
    return true;
  }
  bool on_string_part(json::string_view part, size_t, json::error_code&) { return append(part); }
  bool on_string(json::string_view part, size_t, json::error_code&) {
    append(part);
    self().string(std::exchange(text_, {}));
    return true;
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t value, json::string_view text, json::error_code&) {
    return number(value, text, value >= 0 && text.find('-') == json::string_view::npos);
  }
  bool on_uint64(uint64_t, json::string_view text, json::error_code&) {
    return number(0, text, false);
  }
  bool on_double(double, json::string_view text, json::error_code&) {
    return number(0, text, false);
  }
  bool on_bool(bool, json::error_code&) {
    self().other("a boolean");
    return true;
  }
  bool on_null(json::error_code&) {
    self().other("null");
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 protected:
  size_t depth() const { return path_.size(); }
  /// Key of the object at nesting level `level`, of which the current value is a part.
  const std::string& key_at(size_t level) const { return path_[level]; }
  [[noreturn]] void refuse(const std::string& found, const std::string& allowed) const {
    throw IoError(file_ + ": found " + found + where() + "; must be " + allowed);
  }
  const std::string& file_;

 private:
  Handler& self() { return static_cast<Handler&>(*this); }
  bool append(json::string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool number(int64_t value, json::string_view text, bool whole) {
    self().integer(value, std::string_view(text.data(), text.size()), whole);
    return true;
  }
  std::string where() const {
    std::string text;
    for (const std::string& key : path_) {
      if (!key.empty()) text.append(text.empty() ? " in " : ".").append(in_quotes(key));
    }
    return text;
  }

  std::string text_;
  std::vector<std::string> path_;  // the current key of each open object; empty for an array
  std::vector<std::unordered_set<std::string>> keys_;
};

/// Runs `parser` over the text; everything after the one value must be JSON white space.
template <typename Parser>
void parse(std::string_view text, Parser& parser, const std::string& file) {
  json::error_code error;
  const size_t used = parser.write_some(false, text.data(), text.size(), error);
  SMELT_CHECK(IoError, !error,
              file << ": not valid JSON at byte " << used << ": " << error.message());
  const size_t rest = text.find_first_not_of(" \t\r\n", used);
  SMELT_CHECK(
      IoError, rest == std::string_view::npos,
      file << ": text after the end of the JSON at byte " << rest << "; only spaces may follow");
}

class HeaderHandler : public StrictHandler<HeaderHandler> {
 public:
  HeaderHandler(const std::string& file, Header& header) : StrictHandler(file), header_(header) {}

  void begin_object() {
    if (depth() == 0) return;
    if (depth() > 1) refuse("an object", "no deeper nesting");
    in_metadata_ = key_at(0) == "__metadata__";
    if (in_metadata_) return;
    SMELT_CHECK(IoError, header_.tensors.size() < kMaxTensors,
                file_ << ": more than " << kMaxTensors << " tensors; that is the limit");
    header_.tensors.emplace_back(key_at(0), TensorInfo{});
    fields_ = 0;
    offsets_ = 0;
  }
  void end_object() {
    if (depth() != 1 || in_metadata_) return;
    const TensorInfo& info = header_.tensors.back().second;
    if (info.dtype.empty() || fields_ != 3 || offsets_ != 2) {
      throw IoError(file_ + ": tensor " + in_quotes(key_at(0)) +
                    " must have dtype, shape and two data_offsets");
    }
  }
  void begin_array() {
    if (depth() != 2 || in_metadata_ || (key_at(1) != "shape" && key_at(1) != "data_offsets")) {
      refuse("an array", expected());
    }
  }
  void key() {
    if (depth() == 1) {
      const char* fault = name_fault(key_at(0));
      SMELT_CHECK(IoError, fault == nullptr || key_at(0) == "__metadata__",
                  file_ << ": tensor name " << in_quotes(key_at(0)) << " " << fault);
    } else if (!in_metadata_) {
      ++fields_;
      if (key_at(1) != "dtype" && key_at(1) != "shape" && key_at(1) != "data_offsets") {
        refuse("an unknown key", "dtype, shape or data_offsets");
      }
    }
  }
  void string(std::string text) {
    if (depth() != 2 || (!in_metadata_ && key_at(1) != "dtype")) {
      refuse("string " + in_quotes(text), expected());
    }
    if (in_metadata_) {
      header_.metadata[key_at(1)] = std::move(text);
      return;
    }
    if (find_dtype(text) == nullptr) refuse(in_quotes(text), "a dtype such as F32, BF16 or I64");
    header_.tensors.back().second.dtype = std::move(text);
  }
  void integer(int64_t value, std::string_view text, bool whole) {
    if (depth() != 3) refuse("number " + std::string(text.substr(0, 40)), expected());
    if (!whole) {
      refuse("number " + std::string(text.substr(0, 40)), "an integer from 0 to 2^63 - 1");
    }
    TensorInfo& info = header_.tensors.back().second;
    if (key_at(1) == "shape") {
      if (info.shape.size() == kMaxRank) {
        refuse("more than " + std::to_string(kMaxRank) + " dimensions", "a list of at most that");
      }
      info.shape.push_back(value);
      return;
    }
    if (offsets_ == 2) refuse("a third number", "two numbers, begin and end");
    (offsets_++ == 0 ? info.begin : info.end) = value;
  }
  void other(const char* what) { refuse(what, expected()); }

 private:
  std::string expected() const {
    if (depth() == 0) return "an object of tensors";
    if (depth() == 1) {
      return key_at(0) == "__metadata__" ? "an object of strings" : "an object for a tensor";
    }
    if (in_metadata_) return "a string";
    if (depth() == 3) return "integers only";
    return key_at(1) == "dtype" ? "a string" : "a list of integers";
  }

  Header& header_;
  bool in_metadata_ = false;
  int fields_ = 0;
  int offsets_ = 0;
};

class IndexHandler : public StrictHandler<IndexHandler> {
 public:
  using Map = std::vector<std::pair<std::string, std::string>>;
  IndexHandler(const std::string& file, Map& map) : StrictHandler(file), map_(map) {}
  bool found() const { return found_; }

  // Everything outside weight_map is other programs' business, apart from being valid JSON.
  void begin_object() {
    if (depth() == 1 && in_map()) found_ = true;
    if (depth() > 1 && in_map()) refuse("an object", "a file name");
  }
  void end_object() {}
  void begin_array() {
    if (depth() == 0 || in_map()) refuse("an array", expected());
  }
  void key() {
    if (depth() != 2 || !in_map()) return;
    const char* fault = name_fault(key_at(1));
    SMELT_CHECK(IoError, fault == nullptr,
                file_ << ": tensor name " << in_quotes(key_at(1)) << " " << fault);
    SMELT_CHECK(IoError, map_.size() < kMaxTensors,
                file_ << ": more than " << kMaxTensors << " tensors; that is the limit");
  }
  void string(std::string text) {
    if (depth() == 0) refuse("string " + in_quotes(text), expected());
    if (!in_map()) return;
    if (depth() == 1) refuse("string " + in_quotes(text), expected());
    const bool plain = !text.empty() && text.size() <= 255 && text[0] != '.' &&
                       text.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos &&
                       text.find("..") == std::string::npos;
    if (!plain) refuse(in_quotes(text), "a plain file name in the same folder");
    map_.emplace_back(key_at(1), std::move(text));
  }
  void integer(int64_t, std::string_view text, bool) {
    if (depth() == 0 || in_map()) refuse("number " + std::string(text.substr(0, 40)), expected());
  }
  void other(const char* what) {
    if (depth() == 0 || in_map()) refuse(what, expected());
  }

 private:
  bool in_map() const { return depth() > 0 && key_at(0) == "weight_map"; }
  std::string expected() const {
    if (depth() == 0) return "an object with weight_map";
    return depth() == 1 ? "an object of file names" : "a file name";
  }

  Map& map_;
  bool found_ = false;
};

/// Bytes that shape and dtype ask for, every product checked from left to right.
int64_t expected_bytes(const std::string& file, const std::string& name, const TensorInfo& info) {
  int64_t bits = 1;
  bool fits = true;
  for (const int64_t d : info.shape) fits = fits && !__builtin_mul_overflow(bits, d, &bits);
  fits = fits && !__builtin_mul_overflow(bits, int64_t(find_dtype(info.dtype)->bits), &bits);
  SMELT_CHECK(IoError, fits,
              file << ": tensor " << in_quotes(name) << ": shape " << to_string(info.shape)
                   << " is too large; its " << info.dtype << " elements must fit 2^63 bits");
  SMELT_CHECK(IoError, bits % 8 == 0,
              file << ": tensor " << in_quotes(name) << ": shape " << to_string(info.shape)
                   << " of " << info.dtype << " must fill whole bytes");
  return bits / 8;
}

}  // namespace

const FileDType* find_dtype(std::string_view name) {
  const auto* found = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](const FileDType& d) { return d.name == name; });
  return found == std::end(kDTypes) ? nullptr : found;
}

const FileDType& file_dtype(const TensorSpec& tensor) {
  // F16 also reads as f32, so the element size decides.
  const auto* found = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const FileDType& d) {
    return d.dtype == tensor.dtype && d.bits == 8 * tensor.element_bytes();
  });
  SMELT_CHECK(DTypeError, found != std::end(kDTypes),
              "safetensors: no dtype for " << name_of(tensor.dtype)
                                           << (tensor.half ? " stored as F16" : ""));
  return *found;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kShown = 100;
  const std::string shown = json_string(text.substr(0, kShown));
  return text.size() <= kShown ? shown : shown + "...";
}

const char* name_fault(std::string_view name) {
  if (name == "__metadata__") return "is reserved";
  if (name.size() > kMaxNameBytes) return "is longer than 1024 bytes, which is the limit";
  if (name.find('\0') != std::string_view::npos)
    return "contains a zero byte, which is not allowed";
  return nullptr;
}

Header parse_header(std::string_view text, int64_t data_bytes, const std::string& file) {
  Header header;
  json::basic_parser<HeaderHandler> parser(json::parse_options{}, file, header);
  parse(text, parser, file);
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.begin, a.second.end, a.first) <
           std::tie(b.second.begin, b.second.end, b.first);
  });
  int64_t end = 0;
  for (const auto& [name, info] : header.tensors) {
    SMELT_CHECK(IoError, info.begin == end,
                file << ": tensor " << in_quotes(name) << ": data_offsets begin at " << info.begin
                     << " but the bytes before end at " << end
                     << "; tensors may neither overlap nor leave holes");
    SMELT_CHECK(IoError, info.end >= info.begin,
                file << ": tensor " << in_quotes(name) << ": data_offsets [" << info.begin << ", "
                     << info.end << "] must not run backwards");
    SMELT_CHECK(IoError, info.end <= data_bytes,
                file << ": tensor " << in_quotes(name) << ": data_offsets end at " << info.end
                     << " but the file holds " << data_bytes << " bytes of data");
    const int64_t bytes = expected_bytes(file, name, info);
    SMELT_CHECK(IoError, info.end - info.begin == bytes,
                file << ": tensor " << in_quotes(name) << ": data_offsets span "
                     << info.end - info.begin << " bytes but " << info.dtype << " "
                     << to_string(info.shape) << " takes " << bytes);
    end = info.end;
  }
  SMELT_CHECK(IoError, end == data_bytes,
              file << ": " << data_bytes - end << " bytes after the last tensor; the data must end "
                   << "where it does, at byte " << end);
  return header;
}

std::string print_header(const std::vector<TensorSpec>& tensors,
                         const SafetensorsMetadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += json_string(key) + ":" + json_string(value);
    }
    text += '}';
  }
  int64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    if (text.size() > 1) text += ',';
    text += json_string(tensor.name) + ":{\"dtype\":\"" + std::string(file_dtype(tensor).name) +
            "\",\"shape\":[";
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      if (d > 0) text += ',';
      text += std::to_string(tensor.shape[d]);
    }
    const int64_t end = begin + tensor.bytes();
    text += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
    begin = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

std::vector<std::pair<std::string, std::string>> parse_index(std::string_view text,
                                                             const std::string& file) {
  IndexHandler::Map map;
  json::basic_parser<IndexHandler> parser(json::parse_options{}, file, map);
  parse(text, parser, file);
  SMELT_CHECK(IoError, parser.handler().found(),
              file << ": no weight_map; an index must have one, an object of file names");
  return map;
}

std::string print_index(const std::vector<std::pair<std::string, std::string>>& weight_map,
                        int64_t total_size, int64_t total_parameters) {
  std::string text =
      "{\n  \"metadata\": {\n    \"total_parameters\": " + std::to_string(total_parameters) +
      ",\n    \"total_size\": " + std::to_string(total_size) + "\n  },\n  \"weight_map\": {";
  for (size_t i = 0; i < weight_map.size(); ++i) {
    text += i > 0 ? ",\n    " : "\n    ";
    text += json_string(weight_map[i].first) + ": " + json_string(weight_map[i].second);
  }
  return text + (weight_map.empty() ? "}\n}\n" : "\n  }\n}\n");
}

}  // namespace smelt::safetensors
