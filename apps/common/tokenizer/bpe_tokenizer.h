// The tokenizer of a byte-level BPE file, and the one without merges that needs no file.
//
// encode: added tokens that are looked for in raw text are taken out; the rest is cut at invalid
// UTF-8, normalised, searched for the other added tokens, pre-tokenised (pre_tokenizer.h) and
// merged (bpe.h).
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "apps/common/tokenizer/special_names.h"
#include "apps/common/tokenizer/tokenizer.h"
#include "apps/common/tokenizer/tokenizer_file.h"

namespace smelt {

class BpeTokenizer : public Tokenizer {
 public:
  /// @param text   of tokenizer.json
  /// @param where  the file's name, the beginning of messages
  /// @param names  what files beside it say
  /// @param eod    the token that ends a document; empty: by the rule of load_tokenizer
  /// @throws IoError, ConfigError as load_tokenizer.
  BpeTokenizer(std::string text, const std::string& where, const SpecialNames& names = {},
               const std::string& eod = "");
  ~BpeTokenizer() override;
  BpeTokenizer(const BpeTokenizer&) = delete;
  BpeTokenizer& operator=(const BpeTokenizer&) = delete;

  using Tokenizer::encode;
  void encode(std::string_view text, const EncodeOptions& options,
              std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  bool exact() const override { return exact_; }
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  int32_t eod_id() const override { return eod_id_; }
  int64_t id_bytes(int32_t id) const override;
  std::string id_text(int32_t id) const override { return token(id).text; }
  int32_t find_token(std::string_view name) const override;
  std::vector<std::string> notices() const override { return file_.notices; }
  const std::string& json_text() const override { return text_; }
  std::string config_text() const override { return tokenizer_config_text(names_); }

  /// The pieces of `text` that merges work on, for training and tests. No added token is looked
  /// for.
  void for_each_piece(std::string_view text,
                      const std::function<void(std::string_view)>& sink) const;

 private:
  struct Token {
    std::string text;
    bool special = false;
  };
  struct Scratch;
  class Lease;

  const Token& token(int32_t id) const;
  int32_t find_eod(const std::string& where, const std::string& eod) const;
  int32_t special_id(std::string_view name) const;
  template <class Sink>
  void split(std::string_view text, bool added, bool specials, Scratch& scratch, Sink&& sink) const;

  std::string text_;
  TokenizerFile file_;
  SpecialNames names_;
  std::vector<Token> tokens_;          // by id
  AddedTokenFinder raw_, normalized_;  // looked for before and after normalisation
  int32_t eod_id_ = -1;
  bool exact_ = true;
  // What encode needs besides, one for every call at a time; kept, for the piece cache in it.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

/// Ids 0..255 are the bytes, 256 ends a document. tokenizer.json is an ordinary byte-level BPE file
/// without merges, so the usual Hugging Face tools give the same ids for UTF-8 text.
class ByteTokenizer final : public BpeTokenizer {
 public:
  static constexpr int32_t kEod = 256;
  static constexpr int64_t kVocabSize = 257;

  ByteTokenizer();
};

}  // namespace smelt
