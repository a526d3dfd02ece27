#include "apps/common/tokenizer/tokenizer.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestFile = size_t{64} << 20;

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

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  SMELT_CHECK(IoError, in, path.string() << ": cannot read: " << std::strerror(errno));
  std::string text;
  std::array<char, 65536> block;
  while (in.read(block.data(), block.size()), in.gcount() > 0) {
    text.append(block.data(), static_cast<size_t>(in.gcount()));
    SMELT_CHECK(IoError, text.size() <= kLongestFile,
                path.string() << ": more than " << kLongestFile << " bytes, which are allowed");
  }
  SMELT_CHECK(IoError, !in.bad(), path.string() << ": cannot read: " << std::strerror(errno));
  return text;
}

void write_text(const fs::path& path, const std::string& text) {
  const std::string temporary = path.string() + ".tmp";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  SMELT_CHECK(IoError, out, temporary << ": cannot write: " << std::strerror(errno));
  std::error_code error;
  fs::rename(temporary, path, error);
  SMELT_CHECK(IoError, !error, path.string() << ": cannot rename: " << error.message());
}

}  // namespace

void Tokenizer::save(const std::string& dir) const {
  write_text(fs::path(dir) / "tokenizer.json", json_text());
  write_text(fs::path(dir) / "tokenizer_config.json", config_text());
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, const std::string& eod) {
  const fs::path file = fs::is_directory(path) ? fs::path(path) / "tokenizer.json" : fs::path(path);
  SpecialNames names;
  std::string text = read_file(file);
  if (file.filename() == "tokenizer.json") {
    const fs::path config = file.parent_path() / "tokenizer_config.json";
    if (fs::exists(config)) read_tokenizer_config(read_file(config), config.string(), names);
    const fs::path model = file.parent_path() / "config.json";
    if (fs::exists(model)) read_model_config(read_file(model), model.string(), names);
  }
  return std::make_unique<BpeTokenizer>(std::move(text), file.string(), names, eod);
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
