#include "dist/environment.h"

#include <boost/test/unit_test.hpp>

#include "dist/group.h"
#include "tests/dist/ranks.h"

namespace smelt::dist {

using testing::says;

BOOST_AUTO_TEST_SUITE(environment)

BOOST_AUTO_TEST_CASE(is_made_once) {
  int argc = 0;
  char** argv = nullptr;
  BOOST_CHECK_EXCEPTION(Environment(argc, argv), CommError, says("initialised before"));
}

BOOST_AUTO_TEST_CASE(cores_of_a_node_are_counted_once) {
  const Group group = World(1).world();
  const CoreShare share = core_share(group);
  BOOST_TEST(share.ranks_on_node == group.size());
  BOOST_TEST(share.cores >= 1);
  BOOST_TEST(share.cores <= share.node_cores);
  BOOST_TEST(share.node_cores <= share.online_cores);
  BOOST_TEST(share.threads_per_rank() >= 1);
  if (share.node_cores >= group.size()) {
    BOOST_TEST(share.threads_per_rank() * group.size() <= share.node_cores);
  }
}

// CASE 109: the warning names the option to add.
BOOST_AUTO_TEST_CASE(pinned_ranks_are_told_the_option_to_add) {
  const CoreShare pinned{1, 2, 2, 2, true};
  BOOST_TEST(binding_warning(8, pinned) ==
             "8 threads per rank on 1 core: mpirun has pinned this rank; add --bind-to none to the "
             "mpirun line");
  BOOST_TEST(binding_warning(1, pinned) == "");
  // One rank, pinned to one of two cores: its one thread fits the mask, yet a core stays idle.
  BOOST_TEST(binding_warning(1, {1, 1, 1, 2, true}) ==
             "the ranks on this node use 1 of its 2 cores: mpirun has pinned them; add --bind-to "
             "none to the mpirun line");
}

BOOST_AUTO_TEST_CASE(threads_of_all_ranks_must_fit_the_node) {
  const CoreShare shared{8, 2, 8, 8, false};
  BOOST_TEST(shared.threads_per_rank() == 4);
  BOOST_TEST(binding_warning(4, shared) == "");
  BOOST_TEST(binding_warning(8, shared) ==
             "2 ranks x 8 threads on 8 cores of this node: set OMP_NUM_THREADS=4");
  BOOST_TEST(binding_warning(9, shared) ==
             "9 threads per rank on 8 cores: lower OMP_NUM_THREADS to 4");
  const CoreShare crowded{2, 4, 2, 2, false};
  BOOST_TEST(crowded.threads_per_rank() == 1);
  BOOST_TEST(binding_warning(1, crowded) ==
             "4 ranks x 1 threads on 2 cores of this node: start fewer ranks and set "
             "OMP_NUM_THREADS=1");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::dist
