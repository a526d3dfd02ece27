// CASE 110 and 109 with a real mpirun: starts failing_program and looks at what a user sees.
#define BOOST_TEST_MODULE failure
#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include <boost/test/unit_test.hpp>
#include <sys/wait.h>

namespace {

struct Outcome {
  int exit_code = -1;
  double seconds = 0;
  std::string output;  // stdout and stderr

  int lines_with(const std::string& part) const {
    int lines = 0;
    for (size_t i = output.find(part); i != std::string::npos; i = output.find(part, i + 1))
      ++lines;
    return lines;
  }
};

Outcome run(const std::string& options, const std::string& mode) {
  const std::string command = std::string(SMELT_MPIRUN) + " " + options + " " +
                              SMELT_FAILING_PROGRAM + " " + mode + " 2>&1";
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  BOOST_TEST_REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

constexpr const char* kTwoRanks = "-np 2 --oversubscribe --bind-to none";
constexpr const char* kFourRanks = "-np 4 --oversubscribe --bind-to none";
constexpr double kSeconds = 10;  // by when all ranks must be gone

void check(const Outcome& outcome, int exit_code, const std::string& message) {
  BOOST_TEST_CONTEXT(outcome.output) {
    BOOST_TEST(outcome.exit_code == exit_code);
    BOOST_TEST(outcome.seconds < kSeconds);
    BOOST_TEST(outcome.lines_with("error: ") == 1);
    BOOST_TEST(outcome.lines_with(message) == 1);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(failure)

BOOST_AUTO_TEST_CASE(one_rank_that_throws_ends_ranks_that_wait_in_a_collective) {
  check(run(kTwoRanks, "collective"), 1, "error: rank 1 of 2: step 3, checkpoint: disk full\n");
}

BOOST_AUTO_TEST_CASE(one_rank_that_throws_ends_ranks_that_reduce_gradients) {
  check(run(kTwoRanks, "backward"), 1, "error: rank 1 of 2: step 3, backward: out of memory\n");
}

BOOST_AUTO_TEST_CASE(an_error_of_all_ranks_is_said_once_with_its_exit_code) {
  check(run(kFourRanks, "everywhere"), 2, "rank 0 of 4: config.ini: model.top_k = 9");
  check(run(kFourRanks, "verdict"), 2, "rank 0 of 4: shard 7 is damaged");
}

BOOST_AUTO_TEST_CASE(alone_the_message_names_no_rank) {
  check(run("-np 1 --bind-to none", "everywhere"), 2, "error: config.ini: model.top_k = 9");
}

// Nobody is left to print: mpirun says what happened, and the others do not stay.
BOOST_AUTO_TEST_CASE(a_rank_that_disappears_ends_the_others) {
  const Outcome outcome = run(kTwoRanks, "killed");
  BOOST_TEST_CONTEXT(outcome.output) {
    BOOST_TEST(outcome.exit_code != 0);
    BOOST_TEST(outcome.seconds < kSeconds);
  }
}

BOOST_AUTO_TEST_CASE(an_exception_that_leaves_main_ends_the_others) {
  const Outcome outcome = run(kTwoRanks, "escape");
  BOOST_TEST_CONTEXT(outcome.output) {
    BOOST_TEST(outcome.exit_code != 0);
    BOOST_TEST(outcome.seconds < kSeconds);
  }
}

// Caught only outside the Environment: its destructor must not wait for the others to finalise.
BOOST_AUTO_TEST_CASE(an_exception_that_ends_the_environment_ends_the_others) {
  check(run(kTwoRanks, "unwind"), 1, "error: rank 1 of 2: ended by an exception");
}

// Open MPI explains MPI_Abort in a paragraph of its own; -q leaves our line alone.
BOOST_AUTO_TEST_CASE(a_quiet_mpirun_shows_nothing_but_the_message) {
  const Outcome outcome = run(std::string("-q ") + kTwoRanks, "collective");
  BOOST_TEST(outcome.exit_code == 1);
  BOOST_TEST(outcome.output == "error: rank 1 of 2: step 3, checkpoint: disk full\n");
}

BOOST_AUTO_TEST_CASE(success_is_silent_and_zero) {
  const Outcome outcome = run(kTwoRanks, "none");
  BOOST_TEST_CONTEXT(outcome.output) {
    BOOST_TEST(outcome.exit_code == 0);
    BOOST_TEST(outcome.output == "");
  }
}

BOOST_AUTO_TEST_CASE(pinned_ranks_are_warned_under_a_real_mpirun) {
  const Outcome pinned = run("-np 2 --oversubscribe --bind-to core --use-hwthread-cpus", "binding");
  if (pinned.exit_code == 0) {  // some containers do not let mpirun pin
    BOOST_TEST_CONTEXT(pinned.output) { BOOST_TEST(pinned.lines_with("add --bind-to none") == 1); }
  }
  const Outcome free = run(kTwoRanks, "binding");
  BOOST_TEST_CONTEXT(free.output) {
    BOOST_TEST(free.exit_code == 0);
    BOOST_TEST(free.lines_with("lower OMP_NUM_THREADS to") == 1);
  }
}

BOOST_AUTO_TEST_SUITE_END()
