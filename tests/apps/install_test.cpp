// What `make install` puts in place: the example of docs/ is built against it and run, once by way
// of the CMake package and once by way of pkg-config.
#include <boost/test/unit_test.hpp>

#include "tests/apps/program.h"

namespace smelt::testing {
namespace {

void check_run(const ScratchFolder& dir, const std::string& program) {
  const std::string text = join({SMELT_SOURCE_DIR, "/README.md"});
  const Outcome run = run_command(dir, join({"OMP_NUM_THREADS=2 ", program, " ", text, " 50"}));
  BOOST_TEST_CONTEXT(run.err) {
    BOOST_TEST(run.code == 0);
    BOOST_TEST(run.out.find("step 50: loss ") != std::string::npos);
    BOOST_TEST(run.out.find("The ") != std::string::npos);
  }
  BOOST_TEST(run_command(dir, program).code == 2);
}

BOOST_AUTO_TEST_SUITE(install)

BOOST_AUTO_TEST_CASE(the_example_builds_against_the_installed_package) {
  const ScratchFolder dir;
  const std::string prefix = dir.path("prefix"), build = dir.path("build");
  const auto must = [&](const std::string& command) {
    const Outcome outcome = run_command(dir, command);
    BOOST_REQUIRE_MESSAGE(outcome.code == 0, command << "\n" << outcome.out << outcome.err);
  };
  must(join({"cmake --install ", SMELT_BUILD_DIR, " --prefix ", prefix}));
  must(join({prefix, "/bin/smelt-plan --version"}));
  must(join({"cmake -S ", SMELT_SOURCE_DIR, "/docs/example -B ", build,
             " -DCMAKE_PREFIX_PATH=", prefix, " -DCMAKE_CXX_COMPILER=", SMELT_CXX}));
  must(join({"cmake --build ", build}));
  check_run(dir, join({build, "/train_example"}));

  if (run_command(dir, "pkg-config --version").code != 0) {
    BOOST_TEST_MESSAGE("pkg-config is not installed: skipped");
    return;
  }
  const std::string folder = join({"$(dirname $(find ", prefix, " -name smelt.pc))"});
  must(join({"PKG_CONFIG_PATH=", folder, " sh -c '", SMELT_CXX, " ", SMELT_SOURCE_DIR,
             "/docs/example/train.cpp -o ", dir.path("by_pc"),
             " $(pkg-config --cflags --libs smelt)'"}));
  check_run(dir, dir.path("by_pc"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
