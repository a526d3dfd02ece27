#include "apps/common/text_source.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filtering_streambuf.hpp>
#include <boost/json.hpp>
#include <zstd.h>

#include "tensor/error.h"

namespace smelt {
namespace {

namespace io = boost::iostreams;
namespace json = boost::json;

enum class Compression { none, gzip, zstd };

Compression sniff(std::istream& in) {
  std::array<unsigned char, 4> head{};
  in.read(reinterpret_cast<char*>(head.data()), head.size());
  in.clear();
  in.seekg(0);
  if (head[0] == 0x1f && head[1] == 0x8b) return Compression::gzip;
  const bool frame = head[0] == 0x28 && head[1] == 0xb5 && head[2] == 0x2f && head[3] == 0xfd;
  const bool skippable =
      (head[0] & 0xf0) == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18;
  return frame || skippable ? Compression::zstd : Compression::none;
}

// Inflates zstd frames. Not Boost's filter: that one takes a file cut off inside a frame for whole.
class ZstdReader {
 public:
  explicit ZstdReader(std::istream& in) : in_(in), input_(ZSTD_DStreamInSize()) {
    SMELT_CHECK(RunError, stream_, "zstd: out of memory");
  }

  // Fills `buffer` as far as the data goes. @throws IoError with libzstd's message.
  size_t read(std::vector<char>& buffer) {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    while (out.pos < out.size) {
      if (pending_.pos == pending_.size) {
        in_.read(input_.data(), static_cast<std::streamsize>(input_.size()));
        pending_ = {input_.data(), static_cast<size_t>(in_.gcount()), 0};
      }
      const bool at_end = pending_.size == 0;
      if (at_end && !inside_frame_) break;
      const size_t before = out.pos;
      const size_t status = ZSTD_decompressStream(stream_.get(), &out, &pending_);
      SMELT_CHECK(IoError, !ZSTD_isError(status), ZSTD_getErrorName(status));
      inside_frame_ = status != 0;
      SMELT_CHECK(IoError, !at_end || !inside_frame_ || out.pos > before,
                  "the file ends inside a zstd frame");
    }
    return out.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::istream& in_;
  std::unique_ptr<ZSTD_DStream, Free> stream_{ZSTD_createDStream()};
  std::vector<char> input_;
  ZSTD_inBuffer pending_{nullptr, 0, 0};
  bool inside_frame_ = false;
};

// The decompressed bytes of a file, in blocks.
class ByteReader {
 public:
  explicit ByteReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    SMELT_CHECK(IoError, file_, path << ": cannot read: " << std::strerror(errno));
    SMELT_CHECK(IoError, !std::filesystem::is_directory(path), path << ": is a folder, not a file");
    const Compression compression = sniff(file_);
    if (compression == Compression::zstd) {
      zstd_ = std::make_unique<ZstdReader>(file_);
      return;
    }
    if (compression == Compression::gzip) chain_.push(io::gzip_decompressor());
    chain_.push(file_);
  }

  // Fills `buffer`; fewer bytes than its size mean the end.
  size_t read(std::vector<char>& buffer) {
    try {
      if (zstd_) return zstd_->read(buffer);
      const auto size = static_cast<std::streamsize>(buffer.size());
      return static_cast<size_t>(std::max<std::streamsize>(0, chain_.sgetn(buffer.data(), size)));
    } catch (const std::exception& e) {
      throw IoError(path_ + ": cannot read: " + e.what());
    }
  }

 private:
  std::string path_;
  std::ifstream file_;
  std::unique_ptr<ZstdReader> zstd_;
  io::filtering_streambuf<io::input> chain_;
};

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

class LineParser {
 public:
  LineParser(std::string path, const TextOptions& options, const DocumentSink& sink)
      : path_(std::move(path)), options_(options), sink_(sink) {}

  void take(std::string line) {
    ++number_;
    if (number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (line.find_first_not_of(" \t\r") == std::string::npos) return;
    mend_surrogates(line);
    json::error_code error;
    const json::value value = json::parse(line, error);
    SMELT_CHECK(IoError, !error, place() << "not valid JSON: " << error.message());
    SMELT_CHECK(IoError, value.is_object(), place() << "expected a JSON object");
    const auto* text = value.as_object().if_contains(options_.text_key);
    SMELT_CHECK(IoError, text && text->is_string(),
                place() << "the key '" << options_.text_key << "' "
                        << (text ? "is not a string" : "is missing"));
    if (text->as_string().empty()) {
      ++summary_.empty;
      return;
    }
    ++summary_.documents;
    sink_(std::string(text->as_string()), number_);
  }

  // Checked while a line grows, so that no line can fill the memory.
  void check_length(size_t bytes) const {
    SMELT_CHECK(IoError, bytes <= static_cast<size_t>(options_.max_line_bytes),
                path_ << ':' << number_ + 1 << ": the line is longer than "
                      << options_.max_line_bytes << " bytes");
  }
  const TextSummary& summary() const { return summary_; }

 private:
  std::string place() const { return path_ + ':' + std::to_string(number_) + ": "; }

  std::string path_;
  const TextOptions& options_;
  const DocumentSink& sink_;
  int64_t number_ = 0;
  TextSummary summary_;
};

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

TextSummary read_documents(const std::string& path, const TextOptions& options,
                           const DocumentSink& sink) {
  ByteReader reader(path);
  std::vector<char> buffer(size_t{1} << 20);
  std::string pending;
  if (!is_json_lines(path)) {
    size_t count = 0;
    do {
      count = reader.read(buffer);
      pending.append(buffer.data(), count);
    } while (count == buffer.size());
    SMELT_CHECK(IoError, !pending.empty(), path << ": the file is empty");
    sink(std::move(pending), 0);
    return {.documents = 1};
  }
  LineParser parser(path, options, sink);
  size_t count = 0;
  do {
    count = reader.read(buffer);
    std::string_view block(buffer.data(), count);
    for (size_t end = block.find('\n'); end != std::string_view::npos; end = block.find('\n')) {
      pending += block.substr(0, end);
      parser.check_length(pending.size());
      parser.take(std::move(pending));
      pending.clear();
      block.remove_prefix(end + 1);
    }
    pending += block;
    parser.check_length(pending.size());
  } while (count == buffer.size());
  if (!pending.empty()) parser.take(std::move(pending));
  return parser.summary();
}

}  // namespace smelt
