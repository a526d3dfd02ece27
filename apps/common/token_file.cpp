#include "apps/common/token_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "apps/common/output_file.h"
#include "tensor/error.h"

namespace smelt {
namespace {

constexpr char kMagic[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr int64_t kHeaderBytes = 34;
constexpr int64_t kLargeVocabulary = 65500;

template <typename T>
void store(std::ostream& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.write(bytes, sizeof value);
}

TokenType type_of_code(unsigned code, const std::string& path) {
  switch (code) {
    case 1:
      return TokenType::u8;
    case 4:
      return TokenType::i32;
    case 8:
      return TokenType::u16;
    default:
      throw IoError(path + ": dtype code " + std::to_string(code) +
                    " is not supported; allowed are 1 (u8), 8 (u16) and 4 (i32)");
  }
}

uint8_t code_of_type(TokenType type) {
  return type == TokenType::u8 ? 1 : type == TokenType::u16 ? 8 : 4;
}

// An empty file cannot be mapped, so it stays unmapped and is never read from.
void map_file(boost::iostreams::mapped_file_source& file, const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  SMELT_CHECK(IoError, !error, path << ": cannot read: " << error.message());
  if (size == 0) return;
  try {
    file.open(path);
  } catch (const std::exception& e) {
    throw IoError(path + ": cannot map: " + e.what());
  }
}

template <typename T>
int64_t first_bad_id(const char* data, int64_t count, int64_t vocab_size) {
  // Whole blocks first (vectorised maximum and minimum), the exact position only in a bad one.
  constexpr int64_t kBlock = 4096;
  T block[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    std::memcpy(block, data + byte_offset(first, sizeof(T)), static_cast<size_t>(n) * sizeof(T));
    int64_t low = 0, high = 0;
    {
      T least = block[0], most = block[0];
      for (int64_t i = 1; i < n; ++i) {
        least = std::min(least, block[i]);
        most = std::max(most, block[i]);
      }
      low = least;
      high = most;
    }
    if (low >= 0 && high < vocab_size) continue;
    for (int64_t i = 0; i < n; ++i) {
      if (int64_t{block[i]} < 0 || int64_t{block[i]} >= vocab_size) return first + i;
    }
  }
  return -1;
}

}  // namespace

TokenFile::TokenFile(const std::string& prefix) : prefix_(prefix) {
  map_file(idx_, prefix + ".idx");
  map_file(bin_, prefix + ".bin");
  bin_data_ = bin_.is_open() ? bin_.data() : nullptr;
  bin_bytes_ = bin_.is_open() ? static_cast<int64_t>(bin_.size()) : 0;
  check_index();
}

void TokenFile::check_index() {
  const std::string path = prefix_ + ".idx";
  const int64_t size = idx_.is_open() ? static_cast<int64_t>(idx_.size()) : 0;
  SMELT_CHECK(IoError, size >= kHeaderBytes,
              path << ": " << size << " bytes, shorter than the header of " << kHeaderBytes);
  const char* data = idx_.data();
  SMELT_CHECK(IoError, std::memcmp(data, kMagic, sizeof kMagic) == 0,
              path << ": does not start with MMIDIDX, so it is no token file index");
  const auto version = load_unaligned<uint64_t>(data + 9);
  SMELT_CHECK(IoError, version == 1,
              path << ": version " << version << " is not supported; allowed is 1");
  type_ = type_of_code(load_unaligned<uint8_t>(data + 17), path);

  // The counts are only believed once they agree with the file's size: compared in a form that
  // cannot overflow, before they are used for anything.
  const auto sequences = load_unaligned<uint64_t>(data + 18);
  const auto boundaries = load_unaligned<uint64_t>(data + 26);
  const auto room = static_cast<uint64_t>(size - kHeaderBytes);
  SMELT_CHECK(
      IoError,
      sequences <= room / 12 && boundaries <= room / 8 && 12 * sequences + 8 * boundaries == room,
      path << ": " << size << " bytes do not fit " << sequences << " sequences and " << boundaries
           << " document boundaries");
  SMELT_CHECK(IoError, boundaries >= 1, path << ": no document boundaries; at least 1 is needed");
  sequences_ = static_cast<int64_t>(sequences);
  documents_ = static_cast<int64_t>(boundaries) - 1;

  const int64_t width = token_bytes(type_);
  const char* lengths = data + kHeaderBytes;
  const char* offsets = lengths + byte_offset(sequences_, 4);
  int64_t total = 0;
  for (int64_t s = 0; s < sequences_; ++s) {
    const auto length = load_unaligned<int32_t>(lengths + byte_offset(s, 4));
    const auto offset = load_unaligned<int64_t>(offsets + byte_offset(s, 8));
    SMELT_CHECK(IoError, length >= 0,
                path << ": sequence " << s << " has the negative length " << length);
    SMELT_CHECK(IoError, offset == total * width,
                path << ": sequence " << s << " starts at byte " << offset << ", expected "
                     << total * width << " (the sum of the lengths before it)");
    total += length;  // at most 2^31 * size / 12, far inside 63 bits for any real file
  }
  const char* bounds = offsets + byte_offset(sequences_, 8);
  int64_t last = 0;
  for (int64_t d = 0; d <= documents_; ++d) {
    const auto bound = load_unaligned<int64_t>(bounds + byte_offset(d, 8));
    SMELT_CHECK(IoError, bound >= last && bound <= sequences_ && (d > 0 || bound == 0),
                path << ": document boundary " << d << " is " << bound << ", expected "
                     << (d == 0 ? 0 : last) << " to " << (d == 0 ? 0 : sequences_));
    last = bound;
  }
  SMELT_CHECK(IoError, last == sequences_,
              path << ": the last document boundary is " << last << ", expected " << sequences_);
  SMELT_CHECK(IoError, bin_bytes_ / width == total && bin_bytes_ % width == 0,
              prefix_ << ".bin: " << bin_bytes_ << " bytes, but its index describes " << total
                      << " tokens of " << width << " bytes");
  tokens_ = total;
}

void TokenFile::read(int64_t first, std::span<int32_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  SMELT_CHECK(IoError, first >= 0 && first <= tokens_ && count <= tokens_ - first,
              prefix_ << ".bin: tokens " << first << " to " << first + count
                      << " asked for, but there are " << tokens_);
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = token(first + i);
}

int64_t TokenFile::document_begin(int64_t document) const {
  SMELT_CHECK(IoError, document >= 0 && document <= documents_,
              prefix_ << ": document " << document << " asked for, but there are " << documents_);
  const char* offsets = idx_.data() + kHeaderBytes + byte_offset(sequences_, 4);
  const char* bounds = offsets + byte_offset(sequences_, 8);
  const auto sequence = load_unaligned<int64_t>(bounds + byte_offset(document, 8));
  if (sequence == sequences_) return tokens_;
  return load_unaligned<int64_t>(offsets + byte_offset(sequence, 8)) / token_bytes(type_);
}

void TokenFile::check_ids(int64_t vocab_size) const {
  int64_t bad = -1;
  switch (type_) {
    case TokenType::u8:
      if (vocab_size < 256) bad = first_bad_id<uint8_t>(bin_data_, tokens_, vocab_size);
      break;
    case TokenType::u16:
      if (vocab_size < 65536) bad = first_bad_id<uint16_t>(bin_data_, tokens_, vocab_size);
      break;
    case TokenType::i32:
      bad = first_bad_id<int32_t>(bin_data_, tokens_, vocab_size);
      break;
  }
  SMELT_CHECK(IoError, bad < 0,
              prefix_ << ".bin: token " << bad << " has id " << token(bad)
                      << ", outside the vocabulary of " << vocab_size << " (allowed: 0 to "
                      << vocab_size - 1 << ")");
}

TokenFileWriter::TokenFileWriter(std::string prefix, int64_t vocab_size,
                                 const std::optional<TokenFilePosition>& resume)
    : prefix_(std::move(prefix)),
      vocab_size_(vocab_size),
      type_(vocab_size < kLargeVocabulary ? TokenType::u16 : TokenType::i32),
      position_(resume.value_or(TokenFilePosition{})),
      keep_(resume.has_value()) {
  open(prefix_ + ".bin.tmp", bin_, resume ? byte_offset(position_.tokens, token_bytes(type_)) : -1);
  open(prefix_ + ".len.tmp", lengths_, resume ? byte_offset(position_.documents, 4) : -1);
}

/// Opens a new file, or an old one behind its first keep_bytes.
void TokenFileWriter::open(const std::string& path, std::fstream& file, int64_t keep_bytes) {
  auto mode = std::ios::binary | std::ios::in | std::ios::out;
  if (keep_bytes < 0) {
    mode |= std::ios::trunc;
  } else {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    SMELT_CHECK(IoError, !error, path << ": cannot go on with it: " << error.message());
    SMELT_CHECK(IoError, size >= static_cast<uintmax_t>(keep_bytes),
                path << ": holds " << size << " bytes, but " << keep_bytes
                     << " had been written; it cannot be gone on with");
    std::filesystem::resize_file(path, static_cast<uintmax_t>(keep_bytes), error);
    SMELT_CHECK(IoError, !error, path << ": cannot cut it: " << error.message());
    mode |= std::ios::ate;
  }
  file.open(path, mode);
  SMELT_CHECK(IoError, file, path << ": cannot create: " << std::strerror(errno));
}

TokenFileWriter::~TokenFileWriter() {
  if (keep_) return;
  bin_.close();
  lengths_.close();
  std::error_code ignored;  // best effort: a destructor has nobody to tell
  for (const char* end : {".bin.tmp", ".len.tmp", ".idx.tmp"})
    std::filesystem::remove(prefix_ + end, ignored);
}

void TokenFileWriter::append(std::span<const int32_t> document) {
  SMELT_CHECK(IoError, document.size() <= size_t{std::numeric_limits<int32_t>::max()},
              prefix_ << ".bin: document " << documents() << " has " << document.size()
                      << " tokens; at most 2147483647 are allowed");
  const auto width = static_cast<size_t>(token_bytes(type_));
  buffer_.resize(document.size() * width);
  for (size_t i = 0; i < document.size(); ++i) {
    const int32_t id = document[i];
    SMELT_CHECK(IoError, id >= 0 && id < vocab_size_,
                prefix_ << ".bin: document " << documents() << " holds id " << id << " at " << i
                        << ", outside the vocabulary of " << vocab_size_);
    if (type_ == TokenType::u16) {
      const auto narrow = static_cast<uint16_t>(id);
      std::memcpy(buffer_.data() + i * width, &narrow, width);
    } else {
      std::memcpy(buffer_.data() + i * width, &id, width);
    }
  }
  bin_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  store(lengths_, static_cast<int32_t>(document.size()));
  SMELT_CHECK(IoError, bin_ && lengths_,
              prefix_ << ".bin.tmp: cannot write: " << std::strerror(errno));
  position_.documents += 1;
  position_.tokens += static_cast<int64_t>(document.size());
}

void TokenFileWriter::sync() {
  bin_.flush();
  lengths_.flush();
  SMELT_CHECK(IoError, bin_ && lengths_,
              prefix_ << ".bin.tmp: cannot write: " << std::strerror(errno));
  sync_path(prefix_ + ".bin.tmp");
  sync_path(prefix_ + ".len.tmp");
  keep_ = true;
}

void TokenFileWriter::write_index(const std::string& path) {
  std::ofstream idx(path, std::ios::binary | std::ios::trunc);
  idx.write(kMagic, sizeof kMagic);
  store<uint64_t>(idx, 1);
  store<uint8_t>(idx, code_of_type(type_));
  store<uint64_t>(idx, static_cast<uint64_t>(documents()));
  store<uint64_t>(idx, static_cast<uint64_t>(documents()) + 1);
  // The lengths are read twice, a block at a time: once for themselves, once for the offsets.
  std::vector<int32_t> block(4096);
  int64_t tokens = 0;
  for (const bool offsets : {false, true}) {
    lengths_.seekg(0);
    for (int64_t d = 0; d < documents(); d += static_cast<int64_t>(block.size())) {
      const auto count = std::min<int64_t>(documents() - d, static_cast<int64_t>(block.size()));
      lengths_.read(reinterpret_cast<char*>(block.data()), count * 4);
      for (int64_t i = 0; i < count; ++i) {
        const int32_t length = block[static_cast<size_t>(i)];
        if (offsets) {
          store<int64_t>(idx, byte_offset(tokens, token_bytes(type_)));
          tokens += length;
        } else {
          store(idx, length);
        }
      }
    }
  }
  SMELT_CHECK(IoError, lengths_ && tokens == position_.tokens,
              prefix_ << ".len.tmp: its lengths come to " << tokens << " tokens, "
                      << position_.tokens << " were written");
  for (int64_t d = 0; d <= documents(); ++d) store(idx, d);
  idx.close();
  SMELT_CHECK(IoError, idx, path << ": cannot write: " << std::strerror(errno));
}

void TokenFileWriter::finish() {
  bin_.close();
  SMELT_CHECK(IoError, bin_, prefix_ << ".bin.tmp: cannot write: " << std::strerror(errno));
  lengths_.flush();
  const std::string idx_path = prefix_ + ".idx.tmp";
  write_index(idx_path);
  lengths_.close();

  // The old index goes first: a crash between the renames leaves a missing file, never a pair of
  // halves from two runs.
  std::error_code error;
  std::filesystem::remove(prefix_ + ".idx", error);
  if (!error) std::filesystem::rename(prefix_ + ".bin.tmp", prefix_ + ".bin", error);
  if (!error) std::filesystem::rename(idx_path, prefix_ + ".idx", error);
  SMELT_CHECK(IoError, !error,
              prefix_ << ": cannot rename the finished files: " << error.message());
  keep_ = true;
  std::filesystem::remove(prefix_ + ".len.tmp", error);
}

}  // namespace smelt
