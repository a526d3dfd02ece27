// Byte pair encoding of one piece: it starts as single bytes; of all neighbours that form a merge
// the one of the lowest rank, of several the leftmost, becomes one symbol, until none is left. That
// order counts for merges that no training has produced, too.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/common/tokenizer/vocabulary.h"

namespace smelt {

/// Merges by their pair, open addressing.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;  ///< of the new symbol
  };
  /// Room for `count` merges.
  explicit MergeTable(size_t count);
  /// A pair that is there already takes the new rank.
  void put(int32_t left, int32_t right, Merge merge);
  /// Null if the pair does not merge.
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }
  bool empty() const { return empty_; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
  bool empty_ = true;
};

/// Ids of pieces met before. Bounded: 4 MiB, a new piece takes the place of the one whose slot it
/// falls on.
class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 24, kMaxIds = 9;
  struct Slot {
    std::array<uint64_t, kMaxBytes / 8> text{};
    uint16_t bytes = 0;  // 0: free
    uint16_t count = 0;
    std::array<int32_t, kMaxIds> ids{};
  };
  static_assert(sizeof(Slot) == 64);

  PieceCache() : slots_(size_t{1} << kBits) {}
  /// The slot of `piece`, 1 to kMaxBytes long, claimed for it: count is 0 if it is new and its ids
  /// are to be filled in (left at 0 if they do not fit).
  Slot& slot(std::string_view piece);

 private:
  static constexpr int kBits = 16;
  std::vector<Slot> slots_;
};

class Bpe {
 public:
  /// What one thread needs at a time.
  struct Scratch {
    PieceCache cache;
    std::vector<int32_t> symbols;
    std::vector<uint32_t> next, previous;
    std::vector<uint64_t> heap;
  };

  /// @param ignore_merges  a piece that is an entry of the vocabulary is that entry, however its
  ///                       merges would go
  Bpe(const Vocabulary& vocabulary, MergeTable merges, bool ignore_merges)
      : vocabulary_(vocabulary), merges_(std::move(merges)), ignore_merges_(ignore_merges) {}

  /// Keeps `id` from being the whole piece of ignore_merges: special tokens never come from text.
  void exclude(int32_t id) {
    excluded_.insert(std::lower_bound(excluded_.begin(), excluded_.end(), id), id);
  }

  /// Appends the ids of a piece, not empty.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  void merge(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  void merge_short(std::string_view piece, std::vector<int32_t>& ids) const;
  void merge_long(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  bool ignore_merges_;
  std::vector<int32_t> excluded_;  // sorted
};

}  // namespace smelt
