// Tokenizers: text to ids and back. Text is bytes here, whatever its encoding. A document's text
// yields no special id unless the caller asks for it; the end-of-document id is appended by whoever
// writes documents.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace smelt {

/// What encode does with special tokens. By default nothing: a text that spells the name of a
/// special token is ordinary text (case 94).
struct EncodeOptions {
  bool recognise_specials = false;  ///< text that spells a special token gives its id
  bool add_specials = false;  ///< adds what the file's post-processor adds, e.g. a begin token
};

/// All functions may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Appends the ids of `text` to `ids`. Invalid UTF-8 goes through as bytes (pre_tokenizer.h).
  /// @throws RunError if a pattern of the tokenizer exceeds its limits on this text.
  virtual void encode(std::string_view text, const EncodeOptions& options,
                      std::vector<int32_t>& ids) const = 0;
  /// The ids of `text`; no special id among them, also where the text spells a special token's
  /// name.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const {
    std::vector<int32_t> ids;
    encode(text, options, ids);
    return ids;
  }
  /// The bytes of `ids`; special ids give nothing. decode(encode(b)) == b for every byte string if
  /// exact().
  /// @throws ConfigError for an id outside [0, vocab_size()).
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// Whether no text is changed by encoding. False for a tokenizer with a normalizer (NFC rewrites
  /// the code points of valid text), a prefix space, or added tokens that swallow blanks.
  virtual bool exact() const = 0;
  /// One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  /// The id that ends every document.
  virtual int32_t eod_id() const = 0;
  /// Bytes that `id` stands for; 0 for special ids. Used for bits per byte.
  virtual int64_t id_bytes(int32_t id) const = 0;
  /// The bytes of `id`, or the name of a special token; empty for an id without a token.
  /// @throws ConfigError for an id outside [0, vocab_size()).
  virtual std::string id_text(int32_t id) const = 0;
  /// The id of an added token or, else, of a vocabulary entry as tokenizer.json spells it; -1:
  /// none.
  virtual int32_t find_token(std::string_view name) const = 0;
  /// What the file asks for and is left out, for the user to know; mostly empty.
  virtual std::vector<std::string> notices() const = 0;
  /// The text of tokenizer.json, as it was loaded or trained.
  virtual const std::string& json_text() const = 0;
  /// The text of tokenizer_config.json: the class with which transformers takes tokenizer.json as
  /// it is, and the names of the special tokens.
  virtual std::string config_text() const = 0;
  /// Writes DIR/tokenizer.json, from which load_tokenizer makes an equal tokenizer, and
  /// DIR/tokenizer_config.json.
  /// @throws IoError.
  void save(const std::string& dir) const;
};

/// Loads tokenizer.json, given itself or by its folder.
///
/// The token that ends a document is, in this order: `eod`, if given; "eos_token" of a
/// tokenizer_config.json beside; "eos_token_id" of a config.json beside (the first of several); the
/// first of `<|endoftext|>`, `<|end_of_text|>`, `</s>`, `<eos>`, `<|eos|>`, `<|im_end|>` that is a
/// special token. Files beside count only if the file's own name is tokenizer.json.
/// @throws IoError if a file cannot be read or is not JSON, ConfigError if it describes a tokenizer
///   that smelt does not implement or the token that ends a document is unknown or not special.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, const std::string& eod = "");

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
