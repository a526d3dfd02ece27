// smelt-pretrain interrupted: whatever ends a run, going on gives what an uninterrupted run gives.
#include <cmath>
#include <map>

#include "tests/apps/pretrain_runs.h"

namespace smelt::testing {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// Loss of each step of the trunk.
std::map<int64_t, double> losses_of(const std::string& run) {
  std::map<int64_t, double> losses;
  for (const json::object& line : read_jsonl(run + "/metrics.jsonl")) {
    if (line.contains("loss"))
      losses[line.at("step").as_int64()] = line.at("loss").to_number<double>();
  }
  return losses;
}

size_t lines_in(const std::string& path) { return count_of(read_file(path), "\n"); }

/// A file with its first `lines` lines, the rest torn off in the middle of the next.
void tear(const std::string& path, size_t lines) {
  const std::string text = read_file(path);
  size_t end = 0;
  for (size_t i = 0; i < lines; ++i) end = text.find('\n', end) + 1;
  write_file(path, text.substr(0, end + 20));
}

bool saving_now(const std::string& run) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints", error))
    if (entry.path().filename().string().starts_with(".tmp-")) return true;
  return false;
}

BOOST_AUTO_TEST_SUITE(pretrain_resume)

BOOST_AUTO_TEST_CASE(going_on_from_any_checkpoint_equals_no_interruption) {  // CASES 75, 77, 79
  for (const int64_t stop : {1, 4, 11, 22, 23}) {
    BOOST_TEST_CONTEXT("stopped at step " << stop) {
      const std::string run = stand_at(stop);
      const auto outcome = resume(run);
      BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
      BOOST_TEST(outcome.err.find("at step " + std::to_string(stop)) != std::string::npos);
      check_as_straight(run);
    }
  }
  // Of the 96 sequences a gives two thirds, b one: both were read to their end and begun again.
  BOOST_TEST(TokenFile(Common::get().path("a")).tokens() / 32 < 64);
  BOOST_TEST(TokenFile(Common::get().path("b")).tokens() / 32 < 32);
}

BOOST_AUTO_TEST_CASE(signals_and_the_time_limit_save_and_end_with_code_0) {
  const Common& common = Common::get();
  for (const int number : {SIGTERM, SIGUSR1, SIGINT}) {
    const std::string run = common.new_run();
    Program program(common.command(run));
    BOOST_TEST(program.wait_until([&] { return lines_in(run + "/metrics.jsonl") >= 2; }));
    program.signal(number);
    const auto outcome = program.wait();
    BOOST_TEST_CONTEXT(outcome.err) {
      BOOST_TEST(outcome.code == 0);
      BOOST_TEST(outcome.err.find("; go on with --resume") != std::string::npos);
      const auto latest = RunFolder(run).latest_checkpoint();
      BOOST_REQUIRE(latest.has_value());
      BOOST_TEST(latest->step < kSteps);
      BOOST_TEST(latest->step == losses_of(run).rbegin()->first);
    }
    if (number != SIGTERM) continue;
    BOOST_TEST(resume(run).code == 0);
    check_as_straight(run);
  }

  // Two pieces of a second each: every step once, without a gap.
  const std::string run = common.new_run();
  const Words options = {"--run.time_limit=1", "--train.tokens=100000000",
                         "--run.checkpoint_every=0", "--run.eval_every=0", "--resume"};
  int64_t before = 0;
  for (int piece = 0; piece < 2; ++piece) {
    const auto outcome = Program(common.command(run, options)).wait();
    BOOST_TEST(outcome.code == 0);
    BOOST_TEST(outcome.err.find("stopped by run.time_limit") != std::string::npos, outcome.err);
    const auto losses = losses_of(run);
    BOOST_REQUIRE(!losses.empty());
    const int64_t last = losses.rbegin()->first;
    BOOST_TEST(int64_t(losses.size()) == last);
    BOOST_TEST(metrics_of(run).size() == losses.size());
    BOOST_TEST(last > before);
    BOOST_TEST(is_complete(step_folder(run, last)));
    before = last;
  }
}

BOOST_AUTO_TEST_CASE(killed_at_any_moment_it_goes_on_to_the_same_bytes) {  // CASE 86
  const Common& common = Common::get();
  const std::string run = common.new_run();
  uint32_t random = 12345;
  int killed = 0;
  for (int round = 0; round < 8; ++round) {
    Program program(common.command(run, {"--resume"}));
    random = random * 1664525u + 1013904223u;
    const size_t lines = lines_in(run + "/metrics.jsonl");
    // In every second round inside a save, else at some moment after the next logged step.
    bool alive =
        program.wait_until([&] { return program.err().find("budget") != std::string::npos; });
    if (round % 2 == 0) {
      alive = alive && program.wait_until([&] { return saving_now(run); });
      std::this_thread::sleep_for(std::chrono::microseconds(random >> 22));
    } else {
      alive = alive && program.wait_until([&] { return lines_in(run + "/metrics.jsonl") > lines; });
      std::this_thread::sleep_for(std::chrono::microseconds(random >> 18));
    }
    program.signal(SIGKILL);
    const int code = program.wait().code;
    if (alive && code == 128 + SIGKILL) ++killed;
    for (const Checkpoint& c : RunFolder(run).list_checkpoints())
      BOOST_TEST(is_complete(c.path), why_incomplete(c.path));
  }
  BOOST_TEST(killed >= 3);
  const auto outcome = resume(run);
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  check_as_straight(run);
  BOOST_TEST(!saving_now(run));
}

BOOST_AUTO_TEST_CASE(a_damaged_checkpoint_is_passed_over_and_made_again) {  // CASE 86
  const std::string run = stand_at(20);
  fs::copy(step_folder(Common::get().straight(), 22), step_folder(run, 22),
           fs::copy_options::recursive);
  fs::remove(step_folder(run, 22) + "/optimizer.safetensors");
  const auto outcome = resume(run, {}, "1");
  BOOST_TEST(outcome.code == 0, outcome.err);
  BOOST_TEST(outcome.err.find("passing over a damaged checkpoint") != std::string::npos);
  BOOST_TEST(outcome.err.find("optimizer.safetensors: missing") != std::string::npos);
  check_as_straight(run);
  BOOST_TEST(is_complete(step_folder(run, 22)));
}

BOOST_AUTO_TEST_CASE(a_full_disk_ends_with_code_1_and_keeps_the_last_checkpoint) {  // CASE 86
  const Common& common = Common::get();
  const std::string run = stand_at(21);
  const auto limit = int64_t(fs::file_size(step_folder(run, 21) + "/model.safetensors")) + 1000;
  const auto outcome = Program(common.lone_command(run, {"--resume"}), limit).wait();
  BOOST_TEST(outcome.code == 1);
  BOOST_TEST(count_of(outcome.err, "error:") == 1u, outcome.err);
  BOOST_TEST(outcome.err.find("optimizer.safetensors: cannot write") != std::string::npos,
             outcome.err);
  BOOST_TEST(RunFolder(run).list_checkpoints().size() == 1u);
  BOOST_TEST(!saving_now(run));
  BOOST_TEST(resume(run).code == 0);
  check_as_straight(run);
}

BOOST_AUTO_TEST_CASE(other_ranks_and_micro_batches_see_the_same_sequences) {  // CASE 80
  const Common& common = Common::get();
  const auto expected = losses_of(common.straight());
  const auto check = [&](const std::string& run, const Program::Outcome& outcome) {
    BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    const auto losses = losses_of(run);
    BOOST_TEST(losses.size() == expected.size());
    for (const auto& [step, loss] : losses)
      BOOST_TEST(std::abs(loss / expected.at(step) - 1) < 1e-5,
                 "step " << step << ": " << loss << " against " << expected.at(step));
    const auto state = [](const std::string& folder) {
      return json::parse(read_file(step_folder(folder, kSteps) + "/trainer_state.json"));
    };
    BOOST_TEST(state(run) == state(common.straight()));
  };
  for (const char* size : {"1", "4"}) {
    const std::string run = stand_at(14);
    check(run, resume(run, {"--train.micro_batch=" + std::string(size)}));
  }
  const std::string run = stand_at(14);
  check(run, Program(common.mpirun(2, run, {"--resume", "--dist.expert_parallel=2"})).wait());
}

BOOST_AUTO_TEST_CASE(decay_branches_leave_the_trunk_as_it_was) {
  const Common& common = Common::get();
  const Words options = {"--optim.branch_tokens=1536, 2560"};
  const std::string whole = common.new_run();
  const auto outcome = Program(common.command(whole, options)).wait();
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);

  const auto ends = read_jsonl(whole + "/endpoints.jsonl");
  BOOST_REQUIRE(ends.size() == 3u);
  for (size_t i = 0; i < 3; ++i) {
    BOOST_TEST(ends[i].at("tokens").as_int64() == (i == 0 ? 1536 : i == 1 ? 2560 : 3072));
    BOOST_TEST(ends[i].at("loss").is_double());
  }
  check_same_checkpoint(step_folder(whole, kSteps), step_folder(common.straight(), kSteps));
  Words trunk, expected = metrics_of(common.straight());
  std::map<int64_t, int64_t> branch_steps;
  for (const std::string& line : metrics_of(whole)) {
    const json::object o = json::parse(line).as_object();
    if (!o.contains("branch_tokens")) {
      trunk.push_back(line);
    } else if (o.contains("loss")) {
      ++branch_steps[o.at("branch_tokens").as_int64()];
    }
  }
  BOOST_CHECK_EQUAL_COLLECTIONS(trunk.begin(), trunk.end(), expected.begin(), expected.end());
  BOOST_TEST(branch_steps[1536] == 4);
  BOOST_TEST(branch_steps[2560] == 4);

  // A branch is what a run of its length would have become.
  const std::string shorter = stand_at(5);
  BOOST_TEST(resume(shorter, {"--train.tokens=1536", "--accept-changes"}).code == 0);
  check_same_checkpoint(whole + "/branches/tokens-1536", step_folder(shorter, 12));

  // Interrupted inside the first branch, between its end point and its folder, and in the trunk
  // after it: `lines` of metrics.jsonl are whole, of which the trunk has 8 + 2 before the branch.
  const struct {
    size_t lines;
    bool endpoint, folder;
  } kMoments[] = {{11, false, false}, {15, true, false}, {16, true, true}};
  for (const auto& moment : kMoments) {
    BOOST_TEST_CONTEXT(moment.lines << " lines of metrics") {
      const std::string run = stand_at(8, whole);
      tear(run + "/metrics.jsonl", moment.lines);
      if (moment.endpoint) {
        fs::copy_file(whole + "/endpoints.jsonl", run + "/endpoints.jsonl");
        tear(run + "/endpoints.jsonl", 1);
      }
      if (moment.folder) {
        fs::create_directories(run + "/branches");
        fs::copy(whole + "/branches/tokens-1536", run + "/branches/tokens-1536",
                 fs::copy_options::recursive);
      }
      const auto again = resume(run, options);
      BOOST_REQUIRE_MESSAGE(again.code == 0, again.err);
      BOOST_TEST(count_of(again.err, "branch to 1.54k tokens begins") == (moment.folder ? 0u : 1u));
      const Words lines = metrics_of(run), all = metrics_of(whole);
      BOOST_CHECK_EQUAL_COLLECTIONS(lines.begin(), lines.end(), all.begin(), all.end());
      const Words points = endpoints_of(run), all_points = endpoints_of(whole);
      BOOST_CHECK_EQUAL_COLLECTIONS(points.begin(), points.end(), all_points.begin(),
                                    all_points.end());
      for (const char* name :
           {"/branches/tokens-1536", "/branches/tokens-2560", "/checkpoints/step-24"})
        check_same_checkpoint(run + name, whole + name);
    }
  }

  // A branch that the trunk has passed cannot be made any more.
  const std::string passed = stand_at(16, whole);
  const auto refused = resume(passed, options);
  BOOST_TEST(refused.code == 2);
  BOOST_TEST(refused.err.find("the branch to 1536 tokens leaves at step 8") != std::string::npos,
             refused.err);
}

BOOST_AUTO_TEST_CASE(an_end_point_lost_to_a_kill_is_written_on_resume) {
  const std::string run = stand_at(kSteps);
  const auto outcome = resume(run, {"--json"});
  BOOST_TEST(outcome.code == 0, outcome.err);
  BOOST_TEST(endpoints_of(run) == endpoints_of(Common::get().straight()));
  BOOST_TEST(outcome.out == read_file(run + "/endpoints.jsonl"));
  const auto again = resume(run, {"--json"});
  BOOST_TEST(again.code == 0);
  BOOST_TEST(again.err.find("nothing to do") != std::string::npos, again.err);
  BOOST_TEST(again.out == outcome.out);
  BOOST_TEST(read_jsonl(run + "/endpoints.jsonl").size() == 1u);
}

BOOST_AUTO_TEST_CASE(changed_settings_and_data_need_consent) {  // CASES 70, 75, 77
  const Common& common = Common::get();
  const std::string run = stand_at(23);
  const std::string config = read_file(run + "/config.ini");
  const auto refused = [&](const Words& options, const Words& parts) {
    const auto outcome = resume(run, options);
    BOOST_TEST_CONTEXT(outcome.err) {
      BOOST_TEST(outcome.code == 2);
      BOOST_TEST(count_of(outcome.err, "error:") == 1u);
      for (const std::string& part : parts)
        BOOST_TEST(outcome.err.find(part) != std::string::npos, part);
    }
    BOOST_TEST(read_file(run + "/config.ini") == config);  // a refusal changes nothing
  };
  refused({"--optim.lr=0.02"}, {"optim.lr = 0.02 differs from 0.01", "--accept-changes"});
  refused({"--train.tokens=6144"}, {"train.tokens = 6144", "--accept-changes"});
  refused({"--train.seed=2"}, {"train.seed = 2", "--accept-changes"});
  refused({"--model.hidden_size=32"}, {"model.hidden_size = 32", "another model"});
  refused({"--optim.beta2=0.999", "--accept-changes"}, {"optim.beta2 = 0.999 differs from 0.95"});

  const std::string other = common.path("other");
  write_tokens(other, made_up_text(1500, 77));
  const std::string data = "--data.train=a=" + common.path("a") + ":2, b=" + other + ":1";
  refused({data}, {"data.train", "--accept-changes"});
  // Other bytes under the same name.
  for (const char* suffix : {".bin", ".idx"}) {
    fs::rename(common.path("b") + suffix, common.path("kept") + suffix);
    fs::copy_file(other + suffix, common.path("b") + suffix);
  }
  refused({}, {"the training data have changed", "--accept-changes"});
  for (const char* suffix : {".bin", ".idx"})
    fs::rename(common.path("kept") + suffix, common.path("b") + suffix);

  const auto accepted = resume(run, {"--optim.lr=0.02", data, "--accept-changes"});
  BOOST_TEST(accepted.code == 0, accepted.err);
  BOOST_TEST(accepted.err.find("going on with optim.lr = 0.02 (was 0.01)") != std::string::npos);
  BOOST_TEST(accepted.err.find("going on with data.train") != std::string::npos);
  const double lr = read_jsonl(run + "/metrics.jsonl").at(28).at("lr").as_double();
  BOOST_TEST(lr == 0.002, boost::test_tools::tolerance(1e-12));  // a tenth at the last step
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
