#include "dist/group.h"

#include <boost/test/unit_test.hpp>

#include "dist/collectives.h"
#include "tests/dist/ranks.h"

namespace smelt::dist {

using testing::says;

BOOST_AUTO_TEST_SUITE(group)

BOOST_AUTO_TEST_CASE(default_group_is_this_process_alone) {
  const Group alone;
  BOOST_TEST(alone.rank() == 0);
  BOOST_TEST(alone.size() == 1);
  BOOST_TEST(all_reduce_sum(2.5, alone) == 2.5);
}

BOOST_AUTO_TEST_CASE(world_is_data_parallel_times_expert_parallel) {
  const Group all = World(1).world();
  for (int ep = 1; ep <= all.size(); ++ep) {
    if (all.size() % ep != 0) continue;
    BOOST_TEST_CONTEXT("expert_parallel=" << ep << " rank=" << all.rank()) {
      const World world(ep);
      BOOST_TEST(world.world().size() == all.size());
      BOOST_TEST(world.world().rank() == all.rank());
      BOOST_TEST(world.expert_parallel().size() == ep);
      BOOST_TEST(world.expert_parallel().rank() == all.rank() % ep);
      BOOST_TEST(world.expert_data().size() == all.size() / ep);
      BOOST_TEST(world.expert_data().rank() == all.rank() / ep);

      // Who is in the groups, not only how many: sums of 10^rank name the members.
      int64_t place = 1;
      for (int r = 0; r < all.rank(); ++r) place *= 10;
      int64_t consecutive = 0;
      int64_t replicas = 0;
      int64_t power = 1;
      for (int r = 0; r < all.size(); ++r, power *= 10) {
        if (r / ep == all.rank() / ep) consecutive += power;
        if (r % ep == all.rank() % ep) replicas += power;
      }
      BOOST_TEST(all_reduce_sum(place, world.expert_parallel()) == consecutive);
      BOOST_TEST(all_reduce_sum(place, world.expert_data()) == replicas);
    }
  }
}

BOOST_AUTO_TEST_CASE(refuses_expert_parallel_that_does_not_divide_the_ranks) {
  const int size = World(1).world().size();
  BOOST_CHECK_EXCEPTION(World(size + 1), ConfigError,
                        says("dist.expert_parallel = " + std::to_string(size + 1) +
                             " must divide the number of ranks, " + std::to_string(size)));
  BOOST_CHECK_EXCEPTION(World(0), ConfigError, says("dist.expert_parallel = 0"));
  BOOST_CHECK_EXCEPTION(World(-1), ConfigError, says("dist.expert_parallel = -1"));
  if (size == 4) BOOST_CHECK_EXCEPTION(World(3), ConfigError, says("(allowed: 1, 2, 4)"));
}

BOOST_AUTO_TEST_CASE(chunk_limit_follows_the_handle) {
  const World world(1, 7);
  BOOST_TEST(world.world().chunk_elements() == 7);
  BOOST_TEST(world.expert_data().chunk_elements() == 7);
  BOOST_TEST(world.world().duplicate().chunk_elements() == 7);
  const Group usual = world.world().with_chunk_elements(100);
  BOOST_TEST(usual.chunk_elements() == 100);
  BOOST_TEST(usual.size() == world.world().size());
  BOOST_TEST(world.world().chunk_elements() == 7);
  BOOST_CHECK_EXCEPTION(usual.with_chunk_elements(0), CommError, says("chunk limit 0"));
}

BOOST_AUTO_TEST_CASE(a_copy_outlives_its_world) {
  Group kept;
  {
    const World world(1);
    kept = world.world();
  }
  BOOST_TEST(all_reduce_sum(int64_t(1), kept) == kept.size());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::dist
