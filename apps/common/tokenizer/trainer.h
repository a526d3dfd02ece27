// Training of byte-level BPE vocabularies.
//
// Text is cut into pieces as encoding will cut it, distinct pieces are counted, and the pair of
// neighbouring symbols that occurs most often becomes a symbol, again and again. Counts are 64-bit
// (case 97); of equally frequent pairs the one with the smallest ids wins, so the same text gives
// the same file, whatever the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "apps/common/tokenizer/piece_counts.h"

namespace smelt {

/// Whose normalizer, pre-tokenizer and model flags the file gets: GPT-2's, Llama 3's, or that of
/// Qwen2 and Qwen3.
enum class TokenizerStyle { gpt2, llama3, qwen };
/// @throws ConfigError if `name` is not gpt2, llama3 or qwen.
TokenizerStyle tokenizer_style(const std::string& name);

struct BpeTrainerOptions {
  int64_t vocab_size = 32768;  ///< all ids: 256 bytes, merges, special tokens
  TokenizerStyle style = TokenizerStyle::qwen;
  /// Ids behind all others, in this order. Empty: <|begin_of_text|> and <|end_of_text|> for llama3,
  /// <|endoftext|> for the others. <|begin_of_text|> is put in front of a text by
  /// EncodeOptions::add_specials.
  std::vector<std::string> special_tokens = {};
  std::string eod = {};       ///< the one that ends documents; empty: by the rule of load_tokenizer
  int64_t min_frequency = 2;  ///< pairs that occur less often do not merge
  int threads = 0;            ///< for counting; 0: as many as the machine has
  /// Of all distinct pieces together. Beyond it the rarest are forgotten, which changes nothing
  /// that matters: they are far below the counts that merge.
  int64_t piece_memory_bytes = int64_t{2} << 30;
};

class BpeTrainer {
 public:
  /// @throws ConfigError for a vocab_size below 256 + special tokens or above kMaxVocabulary, a
  ///   special token that is empty, given twice, or spelled like a byte, or no eod among them.
  explicit BpeTrainer(const BpeTrainerOptions& options);
  ~BpeTrainer();

  /// Takes a document. Texts are gathered and counted by all threads together.
  void add(std::string_view text);
  /// Takes a piece that occurs `count` times.
  void add_piece(std::string_view piece, uint64_t count);
  /// Bytes and pieces taken so far.
  int64_t bytes() const { return bytes_; }
  /// The tokenizer of what was added. Its vocabulary is smaller than asked for if the text has no
  /// more pairs of min_frequency. @throws RunError if nothing was added.
  std::unique_ptr<Tokenizer> train();

 private:
  void count_gathered();

  BpeTrainerOptions options_;
  std::unique_ptr<BpeTokenizer> splitter_;  // the style without merges
  PieceCounts counts_;
  std::vector<std::string> gathered_;
  int64_t gathered_bytes_ = 0;
  int64_t bytes_ = 0;
};

/// A merge of two ids into a third.
struct TrainedMerge {
  int32_t left, right, result;
};
/// The merges of `pieces` (text, count) in their order, until there are `vocab_size` ids or no pair
/// occurs min_frequency times. Ids 0..255 are the bytes; `tokens` becomes the bytes of every id.
std::vector<TrainedMerge> train_merges(
    const std::vector<std::pair<std::string_view, uint64_t>>& pieces, int64_t vocab_size,
    uint64_t min_frequency, std::vector<std::string>& tokens);

/// The text of tokenizer.json, one token and one merge in a line.
std::string tokenizer_json(TokenizerStyle style, const std::vector<std::string>& tokens,
                           const std::vector<TrainedMerge>& merges,
                           const std::vector<std::string>& special_tokens);

}  // namespace smelt
