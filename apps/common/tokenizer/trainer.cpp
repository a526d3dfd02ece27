#include "apps/common/tokenizer/trainer.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "tensor/error.h"

namespace smelt {
namespace {

// Texts are counted when this much has gathered. It does not depend on the threads, so neither does
// what is forgotten between two counts.
constexpr int64_t kGatheredBytes = int64_t{64} << 20;
// Longer pieces are data, not words.
constexpr size_t kLongestPiece = 4096;

std::vector<std::string> single_bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

}  // namespace

TokenizerStyle tokenizer_style(const std::string& name) {
  if (name == "gpt2") return TokenizerStyle::gpt2;
  if (name == "llama3") return TokenizerStyle::llama3;
  if (name == "qwen") return TokenizerStyle::qwen;
  throw ConfigError("tokenizer style '" + name + "' must be gpt2, llama3 or qwen");
}

BpeTrainer::BpeTrainer(const BpeTrainerOptions& options) : options_(options) {
  auto& specials = options_.special_tokens;
  if (specials.empty()) {
    specials = {"<|endoftext|>"};
    if (options_.style == TokenizerStyle::llama3)
      specials = {"<|begin_of_text|>", "<|end_of_text|>"};
  }
  const int64_t least = 256 + static_cast<int64_t>(specials.size());
  SMELT_CHECK(ConfigError, options_.vocab_size >= least && options_.vocab_size <= kMaxVocabulary,
              "a vocabulary of " << options_.vocab_size << " must be at least " << least
                                 << " (256 bytes and the special tokens) and at most "
                                 << kMaxVocabulary);
  SMELT_CHECK(ConfigError, options_.min_frequency >= 1,
              "min_frequency " << options_.min_frequency << " must be at least 1");
  if (options_.threads <= 0)
    options_.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  splitter_ =
      std::make_unique<BpeTokenizer>(tokenizer_json(options_.style, single_bytes(), {}, specials),
                                     "training", SpecialNames{}, options_.eod);
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::string_view text) {
  gathered_.emplace_back(text);
  gathered_bytes_ += static_cast<int64_t>(text.size());
  bytes_ += static_cast<int64_t>(text.size());
  if (gathered_bytes_ >= kGatheredBytes) count_gathered();
}

void BpeTrainer::add_piece(std::string_view piece, uint64_t count) {
  if (piece.empty() || piece.size() > kLongestPiece) return;
  counts_.add(piece, count);
  bytes_ += static_cast<int64_t>(piece.size() * count);
}

void BpeTrainer::count_gathered() {
  std::vector<PieceCounts> parts(static_cast<size_t>(options_.threads));
  std::atomic<size_t> next{0};
  run_threads(options_.threads, parts.size(), [&](size_t thread) {
    for (size_t i = next++; i < gathered_.size(); i = next++)
      splitter_->for_each_piece(gathered_[i], [&](std::string_view piece) {
        if (piece.size() <= kLongestPiece) parts[thread].add(piece, 1);
      });
  });
  counts_.merge(parts, options_.threads);
  counts_.prune(options_.piece_memory_bytes);
  gathered_.clear();
  gathered_bytes_ = 0;
}

std::unique_ptr<Tokenizer> BpeTrainer::train() {
  count_gathered();
  const auto pieces = counts_.sorted();
  SMELT_CHECK(RunError, !pieces.empty(), "a tokenizer cannot be trained: there is no text");
  std::vector<std::string> tokens;
  const auto merges = train_merges(
      pieces, options_.vocab_size - static_cast<int64_t>(options_.special_tokens.size()),
      static_cast<uint64_t>(options_.min_frequency), tokens);
  return std::make_unique<BpeTokenizer>(
      tokenizer_json(options_.style, tokens, merges, options_.special_tokens),
      "the trained tokenizer", SpecialNames{}, options_.eod);
}

}  // namespace smelt
