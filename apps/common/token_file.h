// Token files: the Megatron-LM indexed dataset, PREFIX.bin (the bare token array) and PREFIX.idx
// (what is where). Here one sequence is one document, and everything in a file counts in 64 bits.
//
// PREFIX.idx, little-endian and unaligned: 9 bytes magic "MMIDIDX\0\0", u64 version 1, u8 dtype
// code, u64 sequences S, u64 documents + 1, i32[S] lengths in tokens, i64[S] byte offsets (the
// running sum of the lengths), i64[documents + 1] document boundaries as sequence numbers.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/iostreams/device/mapped_file.hpp>

namespace smelt {

/// Width of one stored token.
enum class TokenType : uint8_t { u8, u16, i32 };

/// Bytes of one stored token.
constexpr int64_t token_bytes(TokenType type) {
  return type == TokenType::u8 ? 1 : type == TokenType::u16 ? 2 : 4;
}

/// The value whose bytes begin at `at`, however aligned.
template <typename T>
T load_unaligned(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// First byte of element `index` of an array of `width`-byte elements, in 64 bits.
constexpr int64_t byte_offset(int64_t index, int64_t width) { return index * width; }

/// A token file opened for reading. Both halves are mapped, so memory follows what is touched, and
/// all const functions may be called from several threads.
class TokenFile {
 public:
  /// Maps PREFIX.idx and PREFIX.bin and checks them against each other completely: magic, version,
  /// dtype, exact sizes, lengths, offsets, boundaries.
  /// @throws IoError naming the file and what is wrong with it.
  explicit TokenFile(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  /// Tokens of the whole concatenation.
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  /// Token `index` of the concatenation, 0 <= index < tokens().
  int32_t token(int64_t index) const {
    const char* at = bin_data_ + byte_offset(index, token_bytes(type_));
    switch (type_) {
      case TokenType::u8:
        return static_cast<unsigned char>(*at);
      case TokenType::u16:
        return load_unaligned<uint16_t>(at);
      default:
        return load_unaligned<int32_t>(at);
    }
  }
  /// Copies tokens [first, first + out.size()) into `out`; they must exist.
  void read(int64_t first, std::span<int32_t> out) const;
  /// Index of the first token of document `document`; document_begin(documents()) is tokens().
  int64_t document_begin(int64_t document) const;
  /// Tokens of document `document`.
  int64_t document_length(int64_t document) const {
    return document_begin(document + 1) - document_begin(document);
  }
  /// Scans the whole file for an id outside [0, vocab_size).
  /// @throws IoError naming the first such position and its id.
  void check_ids(int64_t vocab_size) const;

 private:
  void check_index();

  std::string prefix_;
  boost::iostreams::mapped_file_source idx_, bin_;
  const char* bin_data_ = nullptr;
  TokenType type_ = TokenType::u16;
  int64_t tokens_ = 0, sequences_ = 0, documents_ = 0, bin_bytes_ = 0;
};

/// How far a token file has been written.
struct TokenFilePosition {
  int64_t documents = 0, tokens = 0;
};

/// Writes a token file document by document, in bounded memory. Everything goes to PREFIX.bin.tmp
/// and PREFIX.len.tmp (lengths, i32 each); finish() makes the index and renames, so a file under
/// its final name is always whole.
class TokenFileWriter {
 public:
  /// Stores u16 if vocab_size < 65500, else i32 (the rule of the format's own writer).
  /// @param resume  where a writer stood that ended after sync(): goes on there, dropping what it
  ///   wrote behind that position
  /// @throws IoError if PREFIX.bin.tmp cannot be created, or is shorter than `resume` says.
  TokenFileWriter(std::string prefix, int64_t vocab_size,
                  const std::optional<TokenFilePosition>& resume = std::nullopt);
  /// Removes the .tmp files unless finish() or sync() succeeded.
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  /// Appends one document, end-of-document token included by the caller.
  /// @throws IoError if an id is outside [0, vocab_size), the document is longer than 2^31 - 1
  ///   tokens, or the disk is full.
  void append(std::span<const int32_t> document);
  /// Brings what was appended to the disk. From then on an unfinished writer leaves its .tmp files,
  /// and another one can go on from position(). @throws IoError, RunError.
  void sync();
  /// Writes the index and gives both files their names. @throws IoError.
  void finish();

  const TokenFilePosition& position() const { return position_; }
  int64_t tokens() const { return position_.tokens; }
  int64_t documents() const { return position_.documents; }

 private:
  void open(const std::string& path, std::fstream& file, int64_t keep_bytes);
  void write_index(const std::string& path);

  std::string prefix_;
  int64_t vocab_size_;
  TokenType type_;
  std::fstream bin_, lengths_;
  std::vector<char> buffer_;
  TokenFilePosition position_;
  bool keep_ = false;
};

}  // namespace smelt
