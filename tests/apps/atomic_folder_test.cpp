// Saves that are killed, run into a full disk or meet an older folder (case 86).
#include "apps/common/atomic_folder.h"

#include <chrono>
#include <random>

#include <boost/test/unit_test.hpp>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/common/safetensors.h"
#include "tests/apps/scratch_folder.h"

namespace smelt::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kElements = 40'000;  // of each tensor: below the size at which threads share work

/// Saves step-<step>: three shards full of the step's number and a small text file.
void save_step(const fs::path& parent, int step, const Tensor& scratch) {
  AtomicFolder folder(parent / ("step-" + std::to_string(step)));
  std::vector<TensorSpec> specs;
  for (const char* name : {"a", "b", "c"}) specs.push_back({name, DType::f32, {kElements}});
  ShardedWriter writer(folder.path(), "model", kElements * 4, specs);
  std::fill_n(scratch.data<float>(), kElements, float(step));
  for (const TensorSpec& spec : writer.order()) writer.write(spec.name, scratch);
  writer.publish();
  fs::create_directory(folder.path() / "sub");
  write_file(folder.path() / "sub" / "state.json", std::to_string(step));
  folder.commit();
}

void check_step(const fs::path& folder) {
  BOOST_TEST(why_incomplete(folder) == "");
  const std::string step = read_file(folder / "sub" / "state.json");
  BOOST_TEST(folder.filename() == "step-" + step);
  const SafetensorsFolder model(folder);
  for (const char* name : {"a", "b", "c"}) {
    const auto values = model.read(name).to_vector<float>();
    BOOST_TEST(size_t(std::count(values.begin(), values.end(), std::stof(step))) ==
               size_t(kElements));
  }
}

std::vector<fs::path> entries(const fs::path& folder, const std::string& begins) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().rfind(begins, 0) == 0) found.push_back(entry.path());
  }
  return found;
}

/// Part of an error's text.
auto says(const std::string& part) {
  return [part](const std::exception& error) {
    const std::string text = error.what();
    BOOST_TEST(text.find('\n') == std::string::npos, text);
    BOOST_TEST(text.find(part) != std::string::npos, "\"" << text << "\" lacks \"" << part << "\"");
    return true;
  };
}

/// Limits the size of files while it lives, as a stand-in for a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : previous_(signal(SIGXFSZ, SIG_IGN)) {
    BOOST_REQUIRE_EQUAL(getrlimit(RLIMIT_FSIZE, &limit_), 0);
    const rlimit full = {bytes, limit_.rlim_max};
    BOOST_REQUIRE_EQUAL(setrlimit(RLIMIT_FSIZE, &full), 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    signal(SIGXFSZ, previous_);
  }

 private:
  rlimit limit_ = {};
  sighandler_t previous_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(atomic_folder)

BOOST_AUTO_TEST_CASE(appears_whole_at_commit) {
  const ScratchFolder scratch;
  const fs::path final_path = scratch / "runs/checkpoints/step-7";
  AtomicFolder folder(final_path);
  BOOST_TEST(folder.path() ==
             scratch / ("runs/checkpoints/.tmp-step-7-" + std::to_string(getpid())));
  write_file(folder.path() / "config.json", "{}");
  fs::create_directories(folder.path() / "a/b");
  write_file(folder.path() / "a/b/x", "12345");
  write_file(folder.path() / "empty", "");
  BOOST_TEST(!fs::exists(final_path));
  folder.commit();
  BOOST_TEST(!fs::exists(folder.path()));
  BOOST_TEST(read_file(final_path / "a/b/x") == "12345");
  BOOST_TEST(read_file(final_path / "complete") ==
             "{\"files\": {\n  \"a/b/x\": 5,\n  \"config.json\": 2,\n  \"empty\": 0\n}}\n");
  BOOST_TEST(is_complete(final_path));
  BOOST_CHECK_THROW(folder.commit(), RunError);
}

BOOST_AUTO_TEST_CASE(leaves_nothing_without_commit) {
  const ScratchFolder scratch;
  {
    const AtomicFolder folder(scratch / "x");
    write_file(folder.path() / "file", "1");
  }
  BOOST_TEST(fs::is_empty(scratch.path()));
}

BOOST_AUTO_TEST_CASE(refuses_to_replace_a_folder) {
  const ScratchFolder scratch;
  fs::create_directory(scratch / "x");
  write_file(scratch / "x/file", "old");
  BOOST_CHECK_EXCEPTION(AtomicFolder(scratch / "x"), ConfigError, says("x: exists already"));
  BOOST_CHECK_EXCEPTION(AtomicFolder(scratch / "x/"), ConfigError, says("x: exists already"));
  BOOST_TEST(read_file(scratch / "x/file") == "old");

  for (const bool empty : {false, true}) {  // rename() would replace the empty one without a word
    AtomicFolder folder(scratch / "late");
    write_file(folder.path() / "file", "new");
    fs::create_directory(scratch / "late");
    if (!empty) write_file(scratch / "late/file", "theirs");
    BOOST_CHECK_EXCEPTION(folder.commit(), RunError, says("late: cannot save there"));
    BOOST_TEST(read_file(scratch / "late/file") == (empty ? "" : "theirs"));
    fs::remove_all(scratch / "late");
  }
  BOOST_TEST(entries(scratch.path(), ".tmp-").empty());
}

BOOST_AUTO_TEST_CASE(refuses_files_that_it_cannot_vouch_for) {
  const ScratchFolder scratch;
  {
    AtomicFolder folder(scratch / "x");
    fs::create_symlink("/etc/hostname", folder.path() / "link");
    BOOST_CHECK_EXCEPTION(folder.commit(), RunError, says("link: only plain files"));
  }
  AtomicFolder folder(scratch / "x");
  write_file(folder.path() / "complete", "mine");
  BOOST_CHECK_EXCEPTION(folder.commit(), RunError, says("complete: this name is kept"));
  BOOST_CHECK_THROW(AtomicFolder("/proc/no/such/place"), RunError);
}

BOOST_AUTO_TEST_CASE(tells_what_is_missing_from_a_folder) {
  const ScratchFolder scratch;
  const auto fresh = [&] {
    fs::remove_all(scratch / "x");
    AtomicFolder folder(scratch / "x");
    write_file(folder.path() / "a", "123");
    write_file(folder.path() / "b", "1");
    folder.commit();
    return scratch / "x";
  };
  BOOST_TEST(why_incomplete(fresh()) == "");
  write_file(fresh() / "more", "a file of the user's");
  BOOST_TEST(why_incomplete(scratch / "x") == "");
  fs::remove(fresh() / "b");
  BOOST_TEST(why_incomplete(scratch / "x") == (scratch / "x/b").string() + ": missing");
  write_file(fresh() / "a", "12");
  BOOST_TEST(why_incomplete(scratch / "x") ==
             (scratch / "x/a").string() + ": 2 bytes instead of 3");
  write_file(fresh() / "a", "1234");
  BOOST_TEST(!is_complete(scratch / "x"));
  fs::remove(fresh() / "complete");
  BOOST_TEST(why_incomplete(scratch / "x") == (scratch / "x/complete").string() + ": missing");
  for (const char* mark :
       {"", "{", "[]", "null", "{}", "{\"files\":[]}", "{\"files\":{\"a\":\"3\"}}",
        "{\"files\":{\"a\":-3}}", "{\"files\":{\"a\\u0000\":3}}"}) {
    write_file(fresh() / "complete", mark);
    BOOST_TEST(!is_complete(scratch / "x"), mark);
  }
  BOOST_TEST(!is_complete(scratch / "no-such-folder"));
}

BOOST_AUTO_TEST_CASE(removes_what_dead_processes_left_and_nothing_else) {
  const ScratchFolder scratch;
  const AtomicFolder living(scratch / "step-1");
  const pid_t child = fork();
  if (child == 0) {
    const AtomicFolder folder(scratch / "step-2");
    write_file(folder.path() / "file", "1");
    _exit(0);  // without the destructor, as if killed
  }
  waitpid(child, nullptr, 0);
  const fs::path dead = scratch / (".tmp-step-2-" + std::to_string(child));
  BOOST_TEST(fs::exists(dead));
  // Left by an earlier process that had the number of this one, which containers bring about.
  fs::create_directory(scratch / (".tmp-step-3-" + std::to_string(getpid())));
  for (const char* name : {"step-4", ".tmp-", ".tmp-7", ".tmp-x-", ".tmp-x-1y", "tmp-x-1"}) {
    fs::create_directory(scratch / name);
  }
  write_file(scratch / ".tmp-file-1", "a file");
  const auto removed = remove_stale(scratch.path());
  BOOST_TEST(removed.size() == 2u);
  BOOST_TEST(!fs::exists(dead));
  BOOST_TEST(fs::exists(living.path()));
  BOOST_TEST(entries(scratch.path(), "").size() == 8u);
  BOOST_TEST(remove_stale(scratch / "no-such-folder").empty());

  fs::create_directories(scratch / (".tmp-step-5-" + std::to_string(getpid())) / "old");
  const AtomicFolder folder(scratch / "step-5");
  BOOST_TEST(fs::is_empty(folder.path()));
}

BOOST_AUTO_TEST_CASE(a_killed_save_never_leaves_a_broken_step) {
  const ScratchFolder scratch;
  const Tensor buffer = Tensor::zeros({kElements});
  const auto begin = std::chrono::steady_clock::now();
  save_step(scratch.path(), 1000, buffer);
  double save_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::mt19937 random(7);
  std::uniform_real_distribution<double> delay(0, 2);  // in saves
  int inside_a_save = 0;
  int rounds_without_step = 0;
  size_t steps = 1;
  for (int kill_number = 0; kill_number < 30; ++kill_number) {
    const int first = 2000 + 100 * kill_number;
    const pid_t child = fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
      for (int step = first; step < first + 100; ++step) save_step(scratch.path(), step, buffer);
      _exit(0);
    }
    usleep(useconds_t(1e6 * save_seconds * delay(random)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    BOOST_REQUIRE(WIFSIGNALED(status));
    BOOST_TEST_CONTEXT("kill " << kill_number) {
      const auto all = entries(scratch.path(), "step-");
      BOOST_TEST(all.size() >= steps);
      rounds_without_step = all.size() == steps ? rounds_without_step + 1 : 0;
      if (rounds_without_step % 5 == 4) save_seconds *= 1.5;  // the disk has become slower
      steps = all.size();
      for (const fs::path& step : all) {
        const int number = std::stoi(step.filename().string().substr(5));
        if (number >= first || number == 1000) check_step(step);
      }
      inside_a_save += int(remove_stale(scratch.path()).size());
      BOOST_TEST(entries(scratch.path(), ".tmp-").empty());
    }
  }
  BOOST_TEST(inside_a_save >= 18);  // most, since a child does nothing but save
  BOOST_TEST(steps > 3u);           // and some kills come after a whole save
  for (const fs::path& step : entries(scratch.path(), "step-")) check_step(step);
}

BOOST_AUTO_TEST_CASE(a_full_disk_leaves_the_previous_checkpoint_alone) {
  const ScratchFolder scratch;
  const Tensor buffer = Tensor::zeros({kElements});
  save_step(scratch.path(), 1, buffer);
  for (const rlim_t bytes :
       {rlim_t(0), rlim_t(8), rlim_t(100), rlim_t(50'000), rlim_t(4 * kElements + 10)}) {
    const FullDisk disk(bytes);
    BOOST_CHECK_EXCEPTION(save_step(scratch.path(), 2, buffer), RunError,
                          says(".safetensors: cannot write"));
  }
  {
    AtomicFolder folder(scratch / "step-3");
    write_file(folder.path() / "small", "1");
    const FullDisk disk(10);  // the files fit, the mark does not
    BOOST_CHECK_EXCEPTION(folder.commit(), RunError, says("complete: cannot write"));
  }
  BOOST_TEST(entries(scratch.path(), "").size() == 1u);
  check_step(scratch / "step-1");
  save_step(scratch.path(), 2, buffer);
  check_step(scratch / "step-2");
}

BOOST_AUTO_TEST_CASE(a_file_that_vanished_is_reported_in_the_words_of_the_system) {
  const ScratchFolder scratch;
  OutputFile file(scratch / "x");
  fs::remove(entries(scratch.path(), "x.tmp-").at(0));
  BOOST_CHECK_EXCEPTION(file.publish(), RunError, says("x: cannot rename the file: No such file"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::testing
