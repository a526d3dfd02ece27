#include "apps/prepare/extract.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>

#include <fnmatch.h>
#include <zlib.h>

#include "apps/prepare/text_bytes.h"
#include "tensor/error.h"

namespace smelt {
namespace {

constexpr size_t npos = std::string_view::npos;
constexpr size_t kDocumentCharacters = 16384;

// Joins consecutive articles to documents of about 16 KB, named PATH#NNNNN.
class Joiner {
 public:
  Joiner(std::vector<Document>& documents, std::string path, std::string_view separator)
      : documents_(documents), path_(std::move(path)), separator_(separator) {}
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  // `characters` is what the article counts for.
  void add(std::string_view article, size_t characters) {
    if (articles_++ > 0) text_ += separator_;
    text_ += article;
    characters_ += characters;
    if (characters_ >= kDocumentCharacters) flush();
  }
  void add(std::string_view article) { add(article, count_characters(article)); }

  void flush() {
    if (articles_ == 0) return;
    std::string digits = std::to_string(number_++);
    if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
    documents_.push_back({path_ + '#' + digits, std::exchange(text_, {})});
    articles_ = characters_ = 0;
  }

 private:
  std::vector<Document>& documents_;
  std::string path_;
  std::string_view separator_;
  std::string text_;
  size_t articles_ = 0, characters_ = 0, number_ = 0;
};

// Inflates one zlib or gzip stream from the front of `data`; false if it is damaged or cut off.
bool inflate_stream(std::string_view& data, std::string& out, int window_bits) {
  z_stream stream{};
  if (inflateInit2(&stream, window_bits) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  std::array<char, 65536> buffer;
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(buffer.data(), buffer.size() - stream.avail_out);
  }
  data.remove_prefix(data.size() - stream.avail_in);
  inflateEnd(&stream);
  return status == Z_STREAM_END;
}

// Number in the dictionary index's base 64, most significant digit first; -1 if it is none.
int64_t index_number(std::string_view digits) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (digits.empty() || digits.size() > 10) return -1;
  int64_t value = 0;
  for (const char c : digits) {
    const size_t digit = kDigits.find(c);
    if (digit == npos) return -1;
    value = value * 64 + static_cast<int64_t>(digit);
  }
  return value;
}

// Removes the notes of a Bible text: from "<note ...>" (or a generated title) to "</note>".
std::string remove_notes(std::string_view text) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find('<'); at != npos;) {
    const std::string_view rest = text.substr(at);
    const bool note = rest.starts_with("<note") || rest.starts_with("<title type=\"x-gen");
    const size_t open_end = note ? text.find('>', at) : npos;
    const size_t close = open_end == npos ? npos : text.find("</note>", open_end + 1);
    if (close == npos) {
      at = text.find('<', at + 1);
      continue;
    }
    out += text.substr(begin, at - begin);
    begin = close + 7;
    at = text.find('<', begin);
  }
  out += text.substr(begin);
  return out;
}

// Verse tags, opening and closing, become line feeds.
std::string break_verses(std::string_view text) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find('<'); at != npos; at = text.find('<', std::max(at + 1, begin))) {
    const std::string_view rest = text.substr(at);
    const bool opens = rest.starts_with("<verse");
    const size_t end = opens || rest.starts_with("</verse>") ? text.find('>', at) : npos;
    if (end == npos) continue;
    out += text.substr(begin, at - begin);
    out.push_back('\n');
    begin = end + 1;
  }
  out += text.substr(begin);
  return out;
}

uint32_t load_u32(std::string_view data, size_t at) {
  uint32_t value;
  std::memcpy(&value, data.data() + at, sizeof value);  // little-endian, like this project's hosts
  return value;
}

}  // namespace

PathFilter::PathFilter(std::string_view globs) {
  for (const std::string_view glob : split_at(globs, " ")) {
    if (glob.empty()) continue;
    if (glob.front() == '!')
      excluded_.emplace_back(glob.substr(1));
    else
      wanted_.emplace_back(glob);
  }
}

bool PathFilter::matches(const std::string& path) const {
  const auto fits = [&](const std::string& glob) {
    return fnmatch(glob.c_str(), path.c_str(), FNM_NOESCAPE) == 0;
  };
  return std::any_of(wanted_.begin(), wanted_.end(), fits) &&
         std::none_of(excluded_.begin(), excluded_.end(), fits);
}

std::string gunzip(std::string_view data, std::string_view label) {
  constexpr int kGzip = 16 + MAX_WBITS;
  std::string out;
  while (!data.empty()) {
    SMELT_CHECK(IoError, inflate_stream(data, out, kGzip),
                label << ": the gzip data is damaged or cut off");
    // Zero padding may follow the last member.
    data.remove_prefix(std::min(data.find_first_not_of('\0'), data.size()));
  }
  return out;
}

Extractor::Extractor(std::string method) : method_(std::move(method)) {
  static const std::set<std::string> kMethods{"text", "html", "dict", "sword", "fortune", "paras"};
  SMELT_CHECK(ConfigError, kMethods.contains(method_),
              "corpus: extraction method '" << method_
                                            << "' is not supported; allowed are text, html, dict, "
                                               "sword, fortune and paras");
}

CleanRules Extractor::rules() const {
  CleanRules rules;
  if (method_ != "text") rules.piece_limit = 32768;
  rules.limit_line_length = method_ == "text" || method_ == "fortune";
  return rules;
}

void Extractor::add(const std::string& path, std::string bytes) {
  if (method_ == "dict" || method_ == "sword") {
    files_[path] = std::move(bytes);
    return;
  }
  if (path.ends_with(".gz")) bytes = gunzip(bytes, path);
  if (method_ == "html") {
    const std::string page =
        declares_latin1(bytes) ? latin1_to_utf8(bytes) : decode_text(std::move(bytes));
    documents_.push_back({path, html_to_text(page)});
    return;
  }
  std::string text = decode_text(std::move(bytes));
  if (method_ == "text") {
    documents_.push_back({path, std::move(text)});
    return;
  }
  Joiner joiner(documents_, path, "\n\n");
  const bool fortune = method_ == "fortune";
  for (const std::string_view part : fortune ? split_at(text, "\n%\n") : split_paragraphs(text)) {
    if (!strip_space(part).empty()) joiner.add(fortune ? strip_newlines(part) : part);
  }
  joiner.flush();
}

std::vector<Document> Extractor::finish() {
  if (method_ == "dict") add_dictionary();
  if (method_ == "sword") add_sword_modules();
  if (method_ == "html") strip_boilerplate(documents_);
  files_.clear();
  return std::move(documents_);
}

void Extractor::add_dictionary() {
  const auto with_end = [&](std::string_view end) {
    return std::find_if(files_.begin(), files_.end(),
                        [&](const auto& file) { return file.first.ends_with(end); });
  };
  const auto packed = with_end(".dz");
  const auto index = with_end(".index");
  SMELT_CHECK(IoError, packed != files_.end() && index != files_.end(),
              "corpus: a dictionary needs one .dz and one .index file");
  const std::string text = gunzip(packed->second, packed->first);

  std::set<std::pair<int64_t, int64_t>> spans;  // by offset, then length
  for (const std::string_view line : split_at(index->second, "\n")) {
    const auto fields = split_at(line, "\t");
    if (fields.size() < 3 || fields[0].starts_with("00-database") ||
        fields[0].starts_with("00database")) {
      continue;
    }
    const int64_t offset = index_number(fields[1]), length = index_number(fields[2]);
    SMELT_CHECK(IoError, offset >= 0 && length >= 0,
                index->first << ": the entry '" << fields[0] << "' has no valid position");
    spans.emplace(offset, length);
  }
  Joiner joiner(documents_, packed->first, "\n\n");
  int64_t end = 0;
  for (const auto& [offset, length] : spans) {
    if (offset < end) continue;  // another headword of an article already taken
    end = offset + length;
    const auto begin = std::min(static_cast<size_t>(offset), text.size());
    const std::string article = decode_text(text.substr(begin, static_cast<size_t>(length)));
    joiner.add(strip_space(article));
  }
  joiner.flush();
}

void Extractor::add_sword_modules() {
  for (const auto& [path, index] : files_) {  // a map: in order of path
    if (!path.ends_with(".bzs") && !path.ends_with(".czs")) continue;
    const std::string data_path = path.substr(0, path.size() - 1) + 'z';
    const auto data = files_.find(data_path);
    SMELT_CHECK(IoError, data != files_.end(),
                path << ": its blocks " << data_path << " are missing");
    Joiner joiner(documents_, path, "\n");
    for (size_t at = 0; at + 12 <= index.size(); at += 12) {
      const size_t offset = std::min<size_t>(load_u32(index, at), data->second.size());
      std::string_view packed =
          std::string_view(data->second).substr(offset, load_u32(index, at + 4));
      std::string block;
      if (!inflate_stream(packed, block, MAX_WBITS)) continue;  // placeholders of empty books
      std::string text = decode_text(std::move(block));
      if (text.find("<note") != npos) text = remove_notes(text);
      text = break_verses(text);
      joiner.add(html_to_text(text), count_characters(text));
    }
    joiner.flush();
  }
}

}  // namespace smelt
