// The program smelt-eval itself: exit codes, one message, and the same numbers on any ranks.
#include <cmath>

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/apps/eval_runs.h"
#include "tests/apps/program.h"

namespace smelt::testing {
namespace {

namespace json = boost::json;

Outcome run_eval(const ScratchFolder& scratch, const std::string& arguments, int ranks = 0) {
  std::string command = "OMP_NUM_THREADS=1 ";
  if (ranks > 0)
    command +=
        join({SMELT_MPIEXEC, " --bind-to none --oversubscribe -np ", std::to_string(ranks), " "});
  return run_command(scratch, command + join({SMELT_EVAL, " ", arguments}));
}

BOOST_AUTO_TEST_SUITE(eval_program)

BOOST_AUTO_TEST_CASE(help_lists_every_option) {
  const ScratchFolder scratch;
  const Outcome help = run_eval(scratch, "--help");
  BOOST_TEST(help.code == 0);
  for (const char* option : {"--checkpoint", "--data", "--seq-len", "--batch", "--max-tokens",
                             "--no-document-mask", "--visits", "--dtype", "--expert-parallel",
                             "--generate", "--temperature", "--figure", "--json"})
    BOOST_TEST(help.out.find(option) != std::string::npos, option << " is missing");
}

BOOST_AUTO_TEST_CASE(ten_sequences_are_scored_once_on_any_number_of_ranks) {
  const ScratchFolder scratch;
  const std::string run = make_run(scratch, "run", 2);
  // One document of 77 bytes: ten sequences of 8 targets, the last short.
  write_texts(scratch.path("ten"), {std::string(77, 'x')});
  const std::string arguments =
      "--checkpoint=" + run + " --json --router-aux --batch=1 --data=ten=" + scratch.path("ten");
  double alone = 0, aux_alone = 0;
  for (const int ranks : {0, 3, 4}) {
    const std::string layout = ranks == 4 ? " --expert-parallel=2" : "";
    const Outcome outcome = run_eval(scratch, arguments + layout, ranks);
    BOOST_TEST_CONTEXT(ranks << " ranks: " << outcome.err) {
      BOOST_REQUIRE(outcome.code == 0);
      const json::value document = json::parse(outcome.out);
      const json::object& all = document.at(0).at("overall").as_object();
      BOOST_TEST(all.at("tokens").as_int64() == 77);
      const double loss = all.at("nats_per_token").as_double();
      if (ranks == 0) alone = loss;
      BOOST_TEST(std::abs(loss / alone - 1) < 1e-6);
      // Ranks without work pass a token that must not count.
      const double aux = document.at(0).at("router_aux_loss").as_double();
      if (ranks == 0) aux_alone = aux;
      BOOST_TEST(aux > 1.5);  // about 2, the model's top_k
      BOOST_TEST(std::abs(aux / aux_alone - 1) < 1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_missing_loop_key_ends_with_code_2_and_one_line) {
  const ScratchFolder scratch;
  const std::string run = make_run(scratch, "run", 2);
  const std::string path = run + "/checkpoints/step-7/config.json";
  json::value config = json::parse(read_file(path));
  config.as_object().at("loop").as_object().erase("visits");
  write_file(path, json::serialize(config));
  const Outcome alone = run_eval(scratch, "--checkpoint=" + run + "/checkpoints/step-7");
  BOOST_TEST(alone.code == 2);
  BOOST_TEST(alone.out.empty());
  BOOST_TEST(count_of(alone.err, "\n") == 1u);
  BOOST_TEST(alone.err.find("key 'visits' is missing") != std::string::npos, alone.err);
  const Outcome two = run_eval(scratch, "--checkpoint=" + run + "/checkpoints/step-7", 2);
  BOOST_TEST(two.code == 2);
  BOOST_TEST(count_of(two.err, "key 'visits' is missing") == 1u, two.err);
}

BOOST_AUTO_TEST_CASE(only_the_first_rank_prints) {
  const ScratchFolder scratch;
  BOOST_TEST(count_of(run_eval(scratch, "--help", 2).out, "usage:") == 1u);
}

BOOST_AUTO_TEST_CASE(bad_input_ends_with_code_2) {
  const ScratchFolder scratch;
  const std::string run = make_run(scratch, "run", 1);
  const auto refused = [&](const std::string& arguments, const std::string& text) {
    const Outcome outcome = run_eval(scratch, arguments);
    BOOST_TEST_CONTEXT(arguments << ": " << outcome.err) {
      BOOST_TEST(outcome.code == 2);
      BOOST_TEST(count_of(outcome.err, "\n") == 1u);
      BOOST_TEST(outcome.err.find(text) != std::string::npos);
    }
  };
  refused("", "--checkpoint=DIR is required");
  refused("--checkpoint=" + scratch.path("none"), "is not a folder");
  refused("--checkpoint=" + scratch.path(), "neither config.json nor checkpoints");
  refused("--checkpoint=" + run + " --data=a=" + scratch.path("none"), "none.idx");
  refused("--checkpoint=" + run + " --expert-parallel=2", "expert_parallel");
  refused("--checkpoint=" + run + " --genrate=x", "did you mean --generate?");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
