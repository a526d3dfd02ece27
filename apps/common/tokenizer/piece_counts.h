// How often each distinct piece occurs, within a bound on memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace smelt {

/// Maps of pieces to 64-bit counts, split by hash into shards that threads can merge apart.
class PieceCounts {
 public:
  static constexpr size_t kShards = 16;

  void add(std::string_view piece, uint64_t count);
  /// Adds all counts of `parts`, with one thread for several shards at a time.
  void merge(const std::vector<PieceCounts>& parts, int threads);
  /// Forgets the rarest pieces until those left take less than half of `bytes`, if they take more
  /// than `bytes` now. What is forgotten depends on the counts alone.
  void prune(int64_t bytes);

  int64_t memory_bytes() const;
  /// All pieces, in the order of their texts.
  std::vector<std::pair<std::string_view, uint64_t>> sorted() const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Shard {
    std::unordered_map<std::string, uint64_t, Hash, std::equal_to<>> counts;
    int64_t bytes = 0;

    void add(std::string_view piece, uint64_t count);
  };
  std::array<Shard, kShards> shards_;
};

/// Runs work(0) ... work(count - 1) on up to `threads` threads; the first error is thrown again.
void run_threads(int threads, size_t count, const std::function<void(size_t)>& work);

}  // namespace smelt
