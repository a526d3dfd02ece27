// Message passing lives as long as the run of the suites, and a case that ends early on one rank
// ends all ranks, because the others would wait for it in their next collective.
#include <memory>

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

struct Run {
  Run() {
    auto& suite = boost::unit_test::framework::master_test_suite();
    environment = std::make_unique<smelt::dist::Environment>(suite.argc, suite.argv);
    boost::unit_test::framework::register_observer(observer);
  }
  ~Run() { boost::unit_test::framework::deregister_observer(observer); }

  std::unique_ptr<smelt::dist::Environment> environment;
  EndAllRanks observer;
};
BOOST_TEST_GLOBAL_FIXTURE(Run);

}  // namespace
