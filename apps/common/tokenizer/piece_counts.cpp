#include "apps/common/tokenizer/piece_counts.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace smelt {
namespace {

// A node of the map, its bucket and the string's own block, about.
constexpr int64_t kNodeBytes = 80;

}  // namespace

void PieceCounts::Shard::add(std::string_view piece, uint64_t count) {
  const auto found = counts.find(piece);
  if (found != counts.end()) {
    found->second += count;
    return;
  }
  counts.emplace(piece, count);
  bytes += kNodeBytes + static_cast<int64_t>(piece.size());
}

void PieceCounts::add(std::string_view piece, uint64_t count) {
  // The map takes the low bits of the hash, the shard others.
  shards_[Hash()(piece) >> 48 & (kShards - 1)].add(piece, count);
}

void PieceCounts::merge(const std::vector<PieceCounts>& parts, int threads) {
  run_threads(threads, kShards, [&](size_t s) {
    for (const PieceCounts& part : parts)
      for (const auto& [piece, count] : part.shards_[s].counts) shards_[s].add(piece, count);
  });
}

int64_t PieceCounts::memory_bytes() const {
  int64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += shard.bytes;
  return bytes;
}

void PieceCounts::prune(int64_t bytes) {
  if (memory_bytes() <= bytes) return;
  for (uint64_t rare = 1; memory_bytes() >= bytes / 2; rare *= 2) {
    for (Shard& shard : shards_)
      for (auto at = shard.counts.begin(); at != shard.counts.end();) {
        const bool gone = at->second <= rare;
        if (gone) shard.bytes -= kNodeBytes + static_cast<int64_t>(at->first.size());
        at = gone ? shard.counts.erase(at) : std::next(at);
      }
  }
}

std::vector<std::pair<std::string_view, uint64_t>> PieceCounts::sorted() const {
  std::vector<std::pair<std::string_view, uint64_t>> pieces;
  for (const Shard& shard : shards_)
    pieces.insert(pieces.end(), shard.counts.begin(), shard.counts.end());
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

void run_threads(int threads, size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::exception_ptr error;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < std::min(threads, static_cast<int>(count)); ++i) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace smelt
