#include "apps/common/tokenizer.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include <boost/json.hpp>

#include "tensor/error.h"

namespace smelt {
namespace {

namespace json = boost::json;

constexpr char kEodText[] = "<|endoftext|>";

// UTF-8 of a code point below U+0800, all that the byte table needs.
std::string utf8_short(unsigned code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

json::object byte_tokenizer_json() {
  json::object vocab;
  for (int id = 0; id < 256; ++id) vocab[byte_level_alphabet()[static_cast<size_t>(id)]] = id;
  const json::object eod{
      {"id", ByteTokenizer::kEod}, {"content", kEodText}, {"single_word", false}, {"lstrip", false},
      {"rstrip", false},           {"normalized", false}, {"special", true}};
  // use_regex = false: without merges, splitting into words could change nothing.
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array{eod}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", json::object{{"type", "BPE"},
                                 {"dropout", nullptr},
                                 {"unk_token", nullptr},
                                 {"continuing_subword_prefix", nullptr},
                                 {"end_of_word_suffix", nullptr},
                                 {"fuse_unk", false},
                                 {"byte_fallback", false},
                                 {"ignore_merges", false},
                                 {"vocab", vocab},
                                 {"merges", json::array{}}}}};
}

// The parts that decide the ids: a byte vocabulary in byte order, no merges, one added token.
bool describes_byte_tokenizer(const json::object& file) {
  const json::object ours = byte_tokenizer_json();
  const auto* model = file.if_contains("model");
  const auto* added = file.if_contains("added_tokens");
  const auto* pre = file.if_contains("pre_tokenizer");
  const auto* normalizer = file.if_contains("normalizer");
  if (!model || !model->is_object() || !added || !pre) return false;
  const auto* vocab = model->as_object().if_contains("vocab");
  const auto* merges = model->as_object().if_contains("merges");
  return vocab && merges && *vocab == ours.at("model").at("vocab") && *merges == json::array{} &&
         *added == ours.at("added_tokens") && *pre == ours.at("pre_tokenizer") &&
         (!normalizer || normalizer->is_null());
}

// Bytes that a UTF-8 character starting with `lead` has, 1 if it cannot start one.
size_t character_bytes(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 1;
}

// Length of the unfinished character at the end of `text`, 0 if the end is a whole one.
size_t unfinished_tail(const std::string& text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    return character_bytes(byte) > back ? back : 0;
  }
  return 0;
}

}  // namespace

const std::array<std::string, 256>& byte_level_alphabet() {
  static const std::array<std::string, 256> table = [] {
    std::array<std::string, 256> result;
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      result[byte] = utf8_short(printable ? byte : next++);
    }
    return result;
  }();
  return table;
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    SMELT_CHECK(ConfigError, id >= 0 && id < kVocabSize,
                "decode: id " << id << " is outside the vocabulary of " << kVocabSize);
    if (id != kEod) text.push_back(static_cast<char>(id));
  }
  return text;
}

void ByteTokenizer::save(const std::string& dir) const {
  const std::string path = (std::filesystem::path(dir) / "tokenizer.json").string();
  std::ofstream out(path + ".tmp", std::ios::binary | std::ios::trunc);
  out << json::serialize(byte_tokenizer_json()) << '\n';
  out.close();
  SMELT_CHECK(IoError, out, path << ".tmp: cannot write: " << std::strerror(errno));
  std::error_code error;
  std::filesystem::rename(path + ".tmp", path, error);
  SMELT_CHECK(IoError, !error, path << ": cannot rename: " << error.message());
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  const bool folder = std::filesystem::is_directory(path);
  const std::string file =
      folder ? (std::filesystem::path(path) / "tokenizer.json").string() : path;
  std::ifstream in(file, std::ios::binary);
  SMELT_CHECK(IoError, in, file << ": cannot read: " << std::strerror(errno));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  json::error_code error;
  const json::value value = json::parse(text, error);
  SMELT_CHECK(IoError, !error, file << ": not valid JSON: " << error.message());
  SMELT_CHECK(IoError, value.is_object(), file << ": expected a JSON object");
  SMELT_CHECK(ConfigError, describes_byte_tokenizer(value.as_object()),
              file << ": this tokenizer is not supported; allowed is the byte tokenizer that "
                      "smelt-prepare writes (256 bytes, no merges, id 256 ends a document)");
  return std::make_unique<ByteTokenizer>();
}

std::string StreamDecoder::push(int32_t id) {
  pending_ += tokenizer_->decode(std::span(&id, 1));
  const size_t held = unfinished_tail(pending_);
  std::string ready = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, ready.size());
  return ready;
}

std::string StreamDecoder::finish() { return std::exchange(pending_, {}); }

}  // namespace smelt
