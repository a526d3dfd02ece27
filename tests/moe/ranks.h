// What the suites that run on several ranks share. Every rank also computes the serial result by
// itself (World::single()), so that nothing has to be exchanged to compare.
#pragma once

#include "dist/collectives.h"
#include "tests/moe/models.h"

namespace smelt::testing {

inline int number_of_ranks() { return dist::World(1).world().size(); }

/// Sizes of the expert-parallel group that this number of ranks and the tiny model allow.
inline std::vector<int> expert_parallel_sizes() {
  std::vector<int> sizes;
  for (const int n : {1, 2, 4})
    if (number_of_ranks() % n == 0) sizes.push_back(n);
  return sizes;
}

/// The part of a batch that each rank takes, as [begin, end) of its sequences: equal parts.
inline std::pair<int64_t, int64_t> equal_part(const Batch& batch, const dist::World& world) {
  const int64_t n = batch.sequences / world.world().size();
  return {world.world().rank() * n, (world.world().rank() + 1) * n};
}

/// Equal parts in micro-batches of `size` sequences; 0: one micro-batch.
inline std::vector<ModelInput> part_of(const Batch& batch, const dist::World& world,
                                       int64_t size = 0) {
  const auto [begin, end] = equal_part(batch, world);
  return batch.micro_batches(begin, end, size > 0 ? size : end - begin);
}

inline void check_same_on_all_ranks(double value, const dist::World& world) {
  for (const double other : dist::all_gather(value, world.world())) BOOST_CHECK_EQUAL(other, value);
}

}  // namespace smelt::testing
