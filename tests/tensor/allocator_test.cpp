#include "tensor/allocator.h"

#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "tensor/error.h"
#include "tensor/rng.h"
#include "tensor/tensor.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using testing::says;

/// An allocator of its own that leaves nothing behind.
struct Fixture {
  CachingAllocator a{Device{}};
  ~Fixture() { a.trim(); }
};

BOOST_FIXTURE_TEST_SUITE(allocator, Fixture)

BOOST_AUTO_TEST_CASE(blocks_are_aligned_and_writable_to_the_end) {
  for (const size_t bytes : {1ul, 64ul, 513ul, 4097ul, (1ul << 20) - 1, (1ul << 20) + 1}) {
    void* block = a.allocate(bytes);
    BOOST_TEST(reinterpret_cast<uintptr_t>(block) % 64 == 0);
    std::memset(block, 1, bytes);
    a.release(block, bytes);
  }
}

BOOST_AUTO_TEST_CASE(no_bytes_need_no_block) {
  BOOST_TEST(a.allocate(0) == nullptr);
  a.release(nullptr, 0);
  BOOST_TEST(a.stats().requests == 0);
}

BOOST_AUTO_TEST_CASE(a_released_block_serves_the_next_request_of_its_class) {
  void* first = a.allocate(1000);
  a.release(first, 1000);
  void* second = a.allocate(1010);  // 1000 and 1010 both round to 1024
  BOOST_TEST(second == first);
  BOOST_TEST(a.stats().system_allocations == 1);
  void* other = a.allocate(5000);
  BOOST_TEST(other != first);
  a.release(second, 1010);
  a.release(other, 5000);
}

BOOST_AUTO_TEST_CASE(statistics_count_blocks_and_rounded_bytes) {
  void* x = a.allocate(100);   // 128
  void* y = a.allocate(1000);  // 1024
  AllocatorStats s = a.stats();
  BOOST_TEST(s.live_bytes == 1152u);
  BOOST_TEST(s.live_blocks == 2);
  BOOST_TEST(s.cached_bytes == 0u);
  a.release(y, 1000);
  s = a.stats();
  BOOST_TEST(s.live_bytes == 128u);
  BOOST_TEST(s.cached_bytes == 1024u);
  BOOST_TEST(s.peak_live_bytes == 1152u);
  a.reset_peak();
  BOOST_TEST(a.stats().peak_live_bytes == 128u);
  a.release(x, 100);
  BOOST_TEST(a.stats().live_blocks == 0);
  BOOST_TEST(a.stats().requests == 2);
}

BOOST_AUTO_TEST_CASE(rounding_wastes_at_most_an_eighth) {
  for (size_t bytes = 513; bytes < 300000; bytes += 611) {
    void* block = a.allocate(bytes);
    const size_t rounded = a.stats().live_bytes;
    BOOST_REQUIRE(rounded >= bytes && rounded - bytes <= bytes / 8);
    a.release(block, bytes);
  }
}

BOOST_AUTO_TEST_CASE(trim_gives_every_cached_block_back) {
  for (const size_t bytes : {100ul, 1000ul, 3ul << 20}) a.release(a.allocate(bytes), bytes);
  a.trim();
  BOOST_TEST(a.stats().cached_bytes == 0u);
  a.release(a.allocate(100), 100);
  BOOST_TEST(a.stats().system_allocations == 4);
}

BOOST_AUTO_TEST_CASE(a_repeating_step_asks_the_system_only_once) {
  const size_t sizes[] = {100, 5000, 5000, 70000, 2u << 20};
  for (int step = 0; step < 5; ++step) {
    std::vector<void*> blocks;
    for (const size_t bytes : sizes) blocks.push_back(a.allocate(bytes));
    for (size_t i = 0; i < blocks.size(); ++i) a.release(blocks[i], sizes[i]);
  }
  BOOST_TEST(a.stats().system_allocations == 5);
}

BOOST_AUTO_TEST_CASE(footprint_stays_bounded_when_sizes_change_every_step) {
  const Random random(1, "sizes");
  uint64_t draw = 0;
  for (int step = 0; step < 300; ++step) {
    std::vector<std::pair<void*, size_t>> blocks;
    for (int i = 0; i < 8; ++i) {
      const size_t bytes = 1 + random.below(draw++, 200000);
      blocks.emplace_back(a.allocate(bytes), bytes);
      const AllocatorStats s = a.stats();
      BOOST_REQUIRE(4 * (s.live_bytes + s.cached_bytes) <= 5 * s.peak_live_bytes);
    }
    for (const auto& [block, bytes] : blocks) a.release(block, bytes);
  }
}

BOOST_AUTO_TEST_CASE(poison_fills_fresh_and_reused_blocks_with_nan_bits) {
  a.set_poison(true);
  for (int i = 0; i < 2; ++i) {
    auto* block = static_cast<float*>(a.allocate(256));
    for (int j = 0; j < 64; ++j) BOOST_TEST(std::isnan(block[j]));
    std::memset(block, 0, 256);
    a.release(block, 256);
  }
}

// Case 65: an underflowed size must be refused, not attempted.
BOOST_AUTO_TEST_CASE(an_impossible_size_is_refused_and_leaves_nothing_cached) {
  a.release(a.allocate(1000), 1000);
  BOOST_CHECK_THROW(a.allocate(SIZE_MAX), std::bad_alloc);
  BOOST_TEST(a.stats().live_bytes == 0u);
  BOOST_CHECK_THROW(a.allocate(size_t{1} << 60), std::bad_alloc);
  BOOST_TEST(a.stats().cached_bytes == 0u);
  BOOST_TEST(a.stats().live_bytes == 0u);
}

BOOST_AUTO_TEST_CASE(threads_may_allocate_at_the_same_time) {
#pragma omp parallel for num_threads(4)
  for (int i = 0; i < 2000; ++i) {
    const auto bytes = size_t(1 + i % 7 * 900);
    auto* block = static_cast<char*>(a.allocate(bytes));
    block[0] = block[bytes - 1] = 1;
    a.release(block, bytes);
  }
  BOOST_TEST(a.stats().live_bytes == 0u);
  BOOST_TEST(a.stats().live_blocks == 0);
  BOOST_TEST(a.stats().requests == 2000);
}

BOOST_AUTO_TEST_CASE(a_device_that_is_not_there_is_refused) {
  if (built_with_cuda()) return;
  BOOST_CHECK_EXCEPTION(smelt::allocator({DeviceKind::cuda, 0}), DeviceError,
                        says("cuda:0 is not available"));
}

BOOST_AUTO_TEST_CASE(a_tensor_returns_its_block_with_its_last_view) {
  const int64_t before = smelt::allocator().stats().live_blocks;
  Tensor view;
  {
    const Tensor t = Tensor::zeros({10, 10});
    view = t.slice(0, 2, 3);
    BOOST_TEST(smelt::allocator().stats().live_blocks == before + 1);
  }
  BOOST_TEST(smelt::allocator().stats().live_blocks == before + 1);
  view = {};
  BOOST_TEST(smelt::allocator().stats().live_blocks == before);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
