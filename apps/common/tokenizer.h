// Tokenizers: text to ids and back. Text is bytes here, whatever its encoding; a document's text
// never yields a special id, the end-of-document id is appended by whoever writes documents.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace smelt {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Ids of `text`; no special id among them, also where the text spells a special token's name.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The bytes of `ids`; decode(encode(b)) == b for every byte string. Special ids give nothing.
  /// @throws ConfigError for an id outside [0, vocab_size()).
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  /// The id that ends every document.
  virtual int32_t eod_id() const = 0;
  /// Bytes that `id` stands for; 0 for special ids. Used for bits per byte.
  virtual int64_t id_bytes(int32_t id) const = 0;
  /// Writes DIR/tokenizer.json, from which load_tokenizer makes an equal tokenizer.
  /// @throws IoError.
  virtual void save(const std::string& dir) const = 0;
};

/// Ids 0..255 are the bytes, 256 ends a document. tokenizer.json is an ordinary byte-level BPE file
/// without merges, so the usual Hugging Face tools give the same ids for UTF-8 text.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kEod = 256;
  static constexpr int64_t kVocabSize = 257;

  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override { return kVocabSize; }
  int32_t eod_id() const override { return kEod; }
  int64_t id_bytes(int32_t id) const override { return id == kEod ? 0 : 1; }
  void save(const std::string& dir) const override;
};

/// Loads tokenizer.json, given itself or by its folder.
/// @throws IoError if it cannot be read or is not JSON, ConfigError if it describes a tokenizer
///   that smelt does not implement.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

/// The printable form of each byte in byte-level BPE files: a string of one UTF-8 character.
const std::array<std::string, 256>& byte_level_alphabet();

/// Turns ids into text one at a time, holding back the bytes of an unfinished UTF-8 character, so
/// that generated text can be printed as it comes.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  /// What can be printed after `id`: whole characters, or bytes that can no longer become one.
  std::string push(int32_t id);
  /// What is left at the end, even if unfinished.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace smelt
