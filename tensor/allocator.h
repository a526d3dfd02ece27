// Caching allocator: freed blocks are kept by size and handed out again, so a training step in
// steady state makes no system call for memory.
//
// Sizes are rounded up to 1/8 of a power of two (at most 12.5 % waste) and reused within that
// class. When no block is cached and live + cached bytes would pass 1.25 times the highest live
// size seen, cached blocks go back to the system first: the footprint stays bounded also when sizes
// differ from step to step, as rows per expert do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "tensor/device.h"

namespace smelt {

struct AllocatorStats {
  size_t live_bytes = 0;           // handed out now (rounded sizes)
  size_t peak_live_bytes = 0;      // highest live_bytes since start or reset_peak()
  size_t cached_bytes = 0;         // kept for reuse
  int64_t live_blocks = 0;         // blocks handed out now
  int64_t requests = 0;            // allocate() calls of non-zero size
  int64_t system_allocations = 0;  // of these, how many needed new memory
};

class CachingAllocator {
 public:
  explicit CachingAllocator(Device device) : device_(device) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// A 64-byte aligned block of at least `bytes` bytes; nullptr for 0. Contents are undefined, or
  /// all-ones bits (NaN) in poison mode. Throws std::bad_alloc with nothing left cached.
  void* allocate(size_t bytes);
  /// Takes back a block from allocate(); `bytes` is the size asked for then. nullptr is ignored.
  void release(void* block, size_t bytes) noexcept;
  /// Returns every cached block to the system.
  void trim();
  AllocatorStats stats() const;
  void reset_peak();

  /// Poison mode: fresh blocks are filled with NaN bits, so that reading memory that was never
  /// written shows. On at start when the environment has SMELT_POISON=1.
  void set_poison(bool on) { poison_ = on; }

 private:
  void trim_to(size_t cached_limit);  // caller holds the lock

  Device device_;
  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> cached_;  // rounded size -> blocks
  AllocatorStats stats_;
  size_t high_water_ = 0;
  bool poison_ = false;
};

/// What a block of `bytes` bytes takes: `bytes` rounded up to its size class.
size_t block_bytes(size_t bytes);

/// The allocator of a device; lives until the process ends.
CachingAllocator& allocator(Device device = {});

}  // namespace smelt
