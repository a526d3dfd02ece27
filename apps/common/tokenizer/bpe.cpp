#include "apps/common/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "tensor/error.h"

namespace smelt {
namespace {

// Up to here looking through all neighbours is faster than a heap.
constexpr size_t kShort = 40;
constexpr uint32_t kNoRank = 0xFFFFFFFF;

}  // namespace

MergeTable::MergeTable(size_t count) {
  const size_t slots = std::bit_ceil(2 * count + 2);
  slots_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::put(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t i = slot_of(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
  empty_ = false;
}

PieceCache::Slot& PieceCache::slot(std::string_view piece) {
  std::array<uint64_t, kMaxBytes / 8> text{};
  std::memcpy(text.data(), piece.data(), piece.size());
  uint64_t hash = text[0] * 0x9E3779B97F4A7C15u;
  hash = (hash ^ (hash >> 32) ^ text[1]) * 0xD6E8FEB86659FD93u;
  hash = (hash ^ (hash >> 32) ^ text[2] ^ piece.size()) * 0xCA5A826395121157u;
  Slot& slot = slots_[hash >> (64 - kBits)];
  if (slot.bytes != piece.size() || slot.text != text) {
    slot.text = text;
    slot.bytes = static_cast<uint16_t>(piece.size());
    slot.count = 0;
  }
  return slot;
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (piece.size() > PieceCache::kMaxBytes) return merge(piece, scratch, ids);
  PieceCache::Slot& slot = scratch.cache.slot(piece);
  if (slot.count == 1) return ids.push_back(slot.ids[0]);
  if (slot.count > 0) {
    ids.insert(ids.end(), slot.ids.data(), slot.ids.data() + slot.count);
    return;
  }
  const size_t before = ids.size();
  merge(piece, scratch, ids);
  const size_t count = ids.size() - before;
  if (count > PieceCache::kMaxIds) return;
  std::copy(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end(), slot.ids.begin());
  slot.count = static_cast<uint16_t>(count);
}

void Bpe::merge(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    const int32_t id = vocabulary_.find_bytes(piece);
    if (id >= 0 && !std::binary_search(excluded_.begin(), excluded_.end(), id))
      return ids.push_back(id);
  }
  if (merges_.empty()) {
    const size_t before = ids.size();
    ids.resize(before + piece.size());
    for (size_t i = 0; i < piece.size(); ++i)
      ids[before + i] = vocabulary_.byte_ids()[static_cast<unsigned char>(piece[i])];
    return;
  }
  piece.size() <= kShort ? merge_short(piece, ids) : merge_long(piece, scratch, ids);
}

void Bpe::merge_short(std::string_view piece, std::vector<int32_t>& ids) const {
  size_t count = piece.size();
  std::array<int32_t, kShort> symbols;
  std::array<uint32_t, kShort> ranks;   // of the pair that begins here
  std::array<int32_t, kShort> results;  // its new symbol
  const auto look_up = [&](size_t i) {
    const MergeTable::Merge* merge = merges_.find(symbols[i], symbols[i + 1]);
    ranks[i] = merge != nullptr ? merge->rank : kNoRank;
    results[i] = merge != nullptr ? merge->id : -1;
  };
  for (size_t i = 0; i < count; ++i)
    symbols[i] = vocabulary_.byte_ids()[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    symbols[best] = results[best];
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  ids.insert(ids.end(), symbols.data(), symbols.data() + count);
}

void Bpe::merge_long(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  // Positions are 32-bit in the heap.
  SMELT_CHECK(RunError, piece.size() < kNoRank,
              "a piece of " << piece.size() << " bytes is too long for the tokenizer");
  const auto count = static_cast<uint32_t>(piece.size());
  auto& symbols = scratch.symbols;
  auto& next = scratch.next;
  auto& previous = scratch.previous;
  auto& heap = scratch.heap;
  symbols.resize(count);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  const auto push = [&](uint32_t at) {
    if (next[at] == count) return;
    const MergeTable::Merge* merge = merges_.find(symbols[at], symbols[next[at]]);
    if (merge == nullptr) return;
    heap.push_back(static_cast<uint64_t>(merge->rank) << 32 | at);
  };
  const auto push_in_order = [&](uint32_t at) {
    const size_t before = heap.size();
    push(at);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i] = vocabulary_.byte_ids()[static_cast<unsigned char>(piece[i])];
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first: never read
  }
  for (uint32_t i = 0; i < count; ++i) push(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    if (symbols[at] < 0 || next[at] == count) continue;
    // Stale if the pair that stands there now is another one; ranks tell pairs apart.
    const MergeTable::Merge* merge = merges_.find(symbols[at], symbols[next[at]]);
    if (merge == nullptr || merge->rank != top >> 32) continue;
    const uint32_t gone = next[at];
    symbols[at] = merge->id;
    symbols[gone] = -1;
    next[at] = next[gone];
    if (next[at] != count) previous[next[at]] = at;
    push_in_order(at);
    if (at != 0) push_in_order(previous[at]);
  }
  for (uint32_t i = 0; i != count; i = next[i]) ids.push_back(symbols[i]);
  // One huge piece should not hold its memory for ever.
  if (count > (1u << 20)) {
    symbols = {};
    next = {};
    previous = {};
    heap = {};
  }
}

}  // namespace smelt
