// Main of the suites that run under mpirun: message passing starts before Boost.Test, and a rank
// that cannot start it fails. A case that ends early on one rank ends all ranks, because the others
// would wait for it in their next collective.
#include <cstdio>
#include <exception>

#include <boost/test/tree/observer.hpp>
#include <boost/test/unit_test.hpp>

#include "dist/environment.h"

namespace {

constexpr int kFailed = 201;  // what Boost.Test returns for failed cases

struct EndAllRanks : boost::unit_test::test_observer {
  void test_unit_aborted(const boost::unit_test::test_unit&) override {
    smelt::dist::abort(kFailed);
  }
  int priority() override { return 100; }  // after the log has been written
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const smelt::dist::Environment environment(argc, argv);
    EndAllRanks observer;
    boost::unit_test::framework::register_observer(observer);
    const int result = boost::unit_test::unit_test_main([] { return true; }, argc, argv);
    boost::unit_test::framework::deregister_observer(observer);
    return result;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return kFailed;
  }
}
