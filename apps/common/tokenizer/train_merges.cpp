// The merges of counted pieces. Every pair of neighbours keeps its count and the pieces it was seen
// in; a merge visits those pieces alone. The queue is lazy: counts fall while an entry waits, so an
// entry whose count is out of date goes back with the count of now.
#include <algorithm>
#include <queue>
#include <unordered_map>

#include "apps/common/tokenizer/trainer.h"

namespace smelt {
namespace {

struct Piece {
  size_t begin;      // of its symbols
  uint32_t symbols;  // how many are left
  uint64_t count;
};

struct Pair {
  uint64_t count = 0;
  std::vector<uint32_t> pieces;  // may hold pieces that have lost the pair since
};

struct Candidate {
  uint64_t count;
  uint64_t key;
  // The most frequent on top, of those the smallest pair.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : key > other.key;
  }
};

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

class Merger {
 public:
  Merger(const std::vector<std::pair<std::string_view, uint64_t>>& texts,
         std::vector<std::string>& tokens)
      : tokens_(tokens) {
    tokens_.clear();
    for (int byte = 0; byte < 256; ++byte) {
      tokens_.emplace_back(1, static_cast<char>(byte));
      ids_[tokens_.back()] = byte;
    }
    for (const auto& [text, count] : texts) {
      const auto number = static_cast<uint32_t>(pieces_.size());
      pieces_.push_back({symbols_.size(), static_cast<uint32_t>(text.size()), count});
      for (size_t i = 0; i < text.size(); ++i) {
        symbols_.push_back(static_cast<unsigned char>(text[i]));
        if (i > 0) add(key_of(symbols_[symbols_.size() - 2], symbols_.back()), number);
      }
    }
    risen_.clear();
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  std::vector<TrainedMerge> run(int64_t vocab_size, uint64_t min_frequency) {
    std::vector<TrainedMerge> merges;
    while (static_cast<int64_t>(tokens_.size()) < vocab_size && !queue_.empty()) {
      const Candidate top = queue_.top();
      if (top.count < min_frequency) break;
      queue_.pop();
      const auto pair = pairs_.find(top.key);
      const uint64_t now = pair == pairs_.end() ? 0 : pair->second.count;
      if (now != top.count) {
        if (now > 0) queue_.push({now, top.key});
        continue;
      }
      const auto left = static_cast<int32_t>(top.key >> 32);
      const auto right = static_cast<int32_t>(top.key & 0xFFFFFFFF);
      const auto [known, added] = merged_.try_emplace(top.key, 0);
      if (added) {
        known->second = result_of(left, right);
        merges.push_back({left, right, known->second});
      }
      apply(left, right, known->second);
    }
    return merges;
  }

 private:
  // Two different merges may spell the same token: it keeps its id.
  int32_t result_of(int32_t left, int32_t right) {
    std::string token = tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)];
    const auto [at, added] = ids_.try_emplace(token, static_cast<int32_t>(tokens_.size()));
    if (added) tokens_.push_back(std::move(token));
    return at->second;
  }

  void add(uint64_t key, uint32_t piece) {
    Pair& pair = pairs_[key];
    pair.count += pieces_[piece].count;
    if (pair.pieces.empty() || pair.pieces.back() != piece) pair.pieces.push_back(piece);
    if (risen_.empty() || risen_.back() != key) risen_.push_back(key);
  }
  void remove(uint64_t key, uint32_t piece) { pairs_[key].count -= pieces_[piece].count; }

  void apply(int32_t left, int32_t right, int32_t result) {
    const std::vector<uint32_t> where = std::move(pairs_[key_of(left, right)].pieces);
    risen_.clear();
    for (const uint32_t number : where) {
      Piece& piece = pieces_[number];
      int32_t* s = symbols_.data() + piece.begin;
      uint32_t written = 0;
      for (uint32_t i = 0; i < piece.symbols;) {
        if (i + 1 == piece.symbols || s[i] != left || s[i + 1] != right) {
          s[written++] = s[i++];
          continue;
        }
        if (written > 0) {
          remove(key_of(s[written - 1], left), number);
          add(key_of(s[written - 1], result), number);
        }
        if (i + 2 < piece.symbols) {
          remove(key_of(right, s[i + 2]), number);
          add(key_of(result, s[i + 2]), number);
        }
        s[written++] = result;
        i += 2;
      }
      piece.symbols = written;
    }
    pairs_.erase(key_of(left, right));
    std::sort(risen_.begin(), risen_.end());
    risen_.erase(std::unique(risen_.begin(), risen_.end()), risen_.end());
    for (const uint64_t key : risen_)
      if (const auto at = pairs_.find(key); at != pairs_.end() && at->second.count > 0)
        queue_.push({at->second.count, key});
  }

  std::vector<std::string>& tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Piece> pieces_;
  std::vector<int32_t> symbols_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::unordered_map<uint64_t, int32_t> merged_;
  std::vector<uint64_t> risen_;  // pairs that this merge has made more frequent
  std::priority_queue<Candidate> queue_;
};

}  // namespace

std::vector<TrainedMerge> train_merges(
    const std::vector<std::pair<std::string_view, uint64_t>>& pieces, int64_t vocab_size,
    uint64_t min_frequency, std::vector<std::string>& tokens) {
  return Merger(pieces, tokens).run(vocab_size, min_frequency);
}

}  // namespace smelt
