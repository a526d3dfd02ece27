#include "tensor/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>

#include <sys/mman.h>

#include "tensor/error.h"

namespace smelt {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMmapThreshold = size_t{1} << 20;  // above: pages go back to the system when freed

void* system_allocate(size_t bytes) {
  if (bytes < kMmapThreshold) return std::aligned_alloc(kAlignment, bytes);
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return nullptr;
  madvise(block, bytes, MADV_HUGEPAGE);
  return block;
}

void system_release(void* block, size_t bytes) {
  if (bytes < kMmapThreshold) {
    std::free(block);
  } else {
    munmap(block, bytes);
  }
}

}  // namespace

size_t block_bytes(size_t bytes) {
  if (bytes <= 512) return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

void* CachingAllocator::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes > SIZE_MAX / 4) throw std::bad_alloc();
  const size_t size = block_bytes(bytes);
  const std::lock_guard lock(mutex_);
  ++stats_.requests;
  void* block = nullptr;
  // A block keeps its own size: only an exact class match is reused, so release() can find it.
  if (const auto found = cached_.find(size); found != cached_.end()) {
    block = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) cached_.erase(found);
    stats_.cached_bytes -= size;
  } else {
    const size_t limit = high_water_ + high_water_ / 4;
    const size_t wanted = stats_.live_bytes + size;
    if (wanted + stats_.cached_bytes > limit) trim_to(limit > wanted ? limit - wanted : 0);
    block = system_allocate(size);
    if (block == nullptr) {
      trim_to(0);
      block = system_allocate(size);
    }
    if (block == nullptr) throw std::bad_alloc();
    ++stats_.system_allocations;
  }
  stats_.live_bytes += size;
  ++stats_.live_blocks;
  stats_.peak_live_bytes = std::max(stats_.peak_live_bytes, stats_.live_bytes);
  high_water_ = std::max(high_water_, stats_.live_bytes);
  if (poison_) std::memset(block, 0xff, size);
  return block;
}

void CachingAllocator::release(void* block, size_t bytes) noexcept {
  if (block == nullptr) return;
  const size_t size = block_bytes(bytes);
  const std::lock_guard lock(mutex_);
  stats_.live_bytes -= size;
  --stats_.live_blocks;
  stats_.cached_bytes += size;
  cached_[size].push_back(block);
}

void CachingAllocator::trim_to(size_t cached_limit) {
  while (stats_.cached_bytes > cached_limit && !cached_.empty()) {
    const auto largest = std::prev(cached_.end());
    system_release(largest->second.back(), largest->first);
    stats_.cached_bytes -= largest->first;
    largest->second.pop_back();
    if (largest->second.empty()) cached_.erase(largest);
  }
}

void CachingAllocator::trim() {
  const std::lock_guard lock(mutex_);
  trim_to(0);
}

AllocatorStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_live_bytes = stats_.live_bytes;
}

CachingAllocator& allocator(Device device) {
  SMELT_CHECK(DeviceError, device.is_cpu(),
              "allocator: " << device << " is not available in this build");
  static CachingAllocator* cpu = [] {  // never destroyed: tensors may outlive static destructors
    auto* created = new CachingAllocator(Device{});
    const char* poison = std::getenv("SMELT_POISON");
    created->set_poison(poison != nullptr && poison[0] == '1');
    return created;
  }();
  return *cpu;
}

}  // namespace smelt
