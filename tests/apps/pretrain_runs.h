// What the tests of the program smelt-pretrain share: token files of a few KB, a tiny looped
// configuration, the program as a child process, and one uninterrupted run to compare with.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/common/atomic_folder.h"
#include "apps/common/metrics.h"
#include "apps/common/run_folder.h"
#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "tests/apps/data_files.h"

namespace smelt::testing {

using Words = std::vector<std::string>;

/// A child process whose stdout and stderr go to files. It is killed when the object goes.
class Program {
 public:
  struct Outcome {
    int code = 0;  // 128 + the signal that ended it
    std::string out, err;
    double seconds = 0;
  };

  /// @param file_limit  bytes that it may write into one file; -1: no limit
  explicit Program(const Words& words, int64_t file_limit = -1) {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const std::string out = scratch_.path("out"), err = scratch_.path("err");
    pid_ = fork();
    if (pid_ != 0) return;
    // Only calls that are safe between fork and exec.
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), STDERR_FILENO);
    if (file_limit >= 0) {
      const rlimit limit{rlim_t(file_limit), rlim_t(file_limit)};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Program() {
    if (pid_ > 0) {
      signal(SIGKILL);
      wait();
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const { kill(pid_, number); }
  std::string err() const { return read_file(scratch_.path("err")); }

  /// Waits until `ready` holds; false when the program has ended before.
  bool wait_until(const std::function<bool()>& ready) {
    while (!ready()) {
      siginfo_t info{};
      waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
      if (info.si_pid != 0) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    return true;
  }
  Outcome wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            read_file(scratch_.path("out")), err(), took.count()};
  }

 private:
  ScratchFolder scratch_;
  pid_t pid_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Documents of words of a small made-up language, about `bytes` in all.
inline Documents made_up_text(size_t bytes, uint32_t seed) {
  const Words words = {"smelt", "iron", "ore ", "into", "loops", "of ", "heat", "\n"};
  const ByteTokenizer tokenizer;
  Documents documents;
  size_t total = 0;
  while (total < bytes) {
    std::string text;
    const size_t length = 20 + seed % 90;
    while (text.size() < length) {
      seed = seed * 1664525u + 1013904223u;
      text += words[seed >> 29] + " ";
    }
    total += text.size();
    documents.push_back(tokenizer.encode(text));
    documents.back().push_back(ByteTokenizer::kEod);
  }
  return documents;
}

/// Steps of the common run. Each has 4 sequences of 32 tokens.
inline constexpr int64_t kSteps = 24, kStepTokens = 128;

/// Data, configuration and the uninterrupted run, made once per process.
class Common {
 public:
  static const Common& get() {
    static const Common common;
    return common;
  }
  std::string path(const std::string& name) const { return scratch_.path(name); }
  /// A fresh name for a run folder.
  std::string new_run() const { return path("run" + std::to_string(++runs_)); }
  /// The run without interruption: 24 steps, each of them saved.
  const std::string& straight() const {
    if (straight_.empty()) {
      straight_ = path("straight");
      const auto outcome = Program(command(straight_)).wait();
      BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    }
    return straight_;
  }
  /// The program on the common configuration, with further options.
  Words command(const std::string& run, const Words& options = {}) const {
    Words words = {SMELT_PRETRAIN, "--config", path("common.ini"), "--run.dir=" + run};
    words.insert(words.end(), options.begin(), options.end());
    return words;
  }
  /// The same as a process that starts no helper of Open MPI: sooner there, and a limit on files is
  /// the program's alone.
  Words lone_command(const std::string& run, const Words& options = {}) const {
    Words words = {"/usr/bin/env", "OMPI_MCA_ess_singleton_isolated=1"};
    for (const std::string& word : command(run, options)) words.push_back(word);
    return words;
  }
  Words mpirun(int ranks, const std::string& run, const Words& options = {}) const {
    Words words = {SMELT_MPIEXEC,     "--bind-to", "none",
                   "--oversubscribe", "-np",       std::to_string(ranks)};
    for (const std::string& word : command(run, options)) words.push_back(word);
    return words;
  }

 private:
  Common() {
    setenv("OMP_NUM_THREADS", "1", 1);
    write_tokens(path("a"), made_up_text(1500, 1));
    write_tokens(path("b"), made_up_text(700, 2));
    write_tokens(path("v"), made_up_text(300, 3));
    ByteTokenizer().save(path(""));
    write_file(path("common.ini"),
               join({"[model]\nhidden_size = 16\nnum_layers = 3\nnum_heads = 2\nnum_kv_heads = 1\n"
                     "head_dim = 8\nnum_experts = 4\nexpert_hidden_size = 8\nmax_seq_len = 64\n"
                     "[loop]\nlayers = 1\nvisits = 2\n"
                     "[train]\nseq_len = 32\nmicro_batch = 2\nglobal_batch = 4\ntokens = 3072\n"
                     "[optim]\nlr = 0.01\nwarmup_tokens = 512\ndecay_tokens = 512\n"
                     "[data]\ntrain = a=",
                     path("a"), ":2, b=", path("b"), ":1\nvalid = v=", path("v"),
                     "\n[run]\ncheckpoint_every = 1\nkeep = 0\neval_every = 4\nlog_every = 1\n"}));
  }

  ScratchFolder scratch_;
  mutable std::string straight_;
  mutable int runs_ = 0;
};

inline std::string step_folder(const std::string& run, int64_t step) {
  return RunFolder(run).checkpoint(step);
}

/// A new run folder that stands at `step` of `source`, with all of its metrics.
inline std::string stand_at(int64_t step, const std::string& source = Common::get().straight()) {
  namespace fs = std::filesystem;
  const std::string run = Common::get().new_run();
  fs::create_directories(run + "/checkpoints");
  for (const char* name : {"config.ini", "metrics.jsonl"})
    fs::copy_file(source + "/" + name, run + "/" + name);
  fs::copy(step_folder(source, step), step_folder(run, step), fs::copy_options::recursive);
  return run;
}

/// The lines of metrics.jsonl without what depends on the clock and the process.
inline Words metrics_of(const std::string& run) {
  Words lines;
  for (boost::json::object line : read_jsonl(run + "/metrics.jsonl")) {
    for (const char* key : {"tokens_per_second", "flops_per_second", "rss_bytes", "seconds"})
      line.erase(key);
    lines.push_back(boost::json::serialize(line));
  }
  return lines;
}

/// Lines of endpoints.jsonl without what names the run.
inline Words endpoints_of(const std::string& run) {
  Words lines;
  for (boost::json::object line : read_jsonl(run + "/endpoints.jsonl")) {
    for (const char* key : {"cell", "config_sha256"}) line.erase(key);
    lines.push_back(boost::json::serialize(line));
  }
  return lines;
}

/// The files of two checkpoint folders, byte for byte; config.ini names the run's folder.
inline void check_same_checkpoint(const std::string& a, const std::string& b) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "trainer_state.json",
                           "config.json", "tokenizer.json"}) {
    BOOST_TEST_CONTEXT(name << " of " << a << " and " << b) {
      const std::string bytes = read_file(a + "/" + name);
      BOOST_TEST(!bytes.empty());
      BOOST_CHECK(bytes == read_file(b + "/" + name));
    }
  }
}

/// `run` ended as the uninterrupted run did: same losses in the same order, same bytes.
inline void check_as_straight(const std::string& run) {
  const std::string& straight = Common::get().straight();
  const Words lines = metrics_of(run), expected = metrics_of(straight);
  BOOST_CHECK_EQUAL_COLLECTIONS(lines.begin(), lines.end(), expected.begin(), expected.end());
  check_same_checkpoint(step_folder(run, kSteps), step_folder(straight, kSteps));
  const Words ends = endpoints_of(run), expected_ends = endpoints_of(straight);
  BOOST_CHECK_EQUAL_COLLECTIONS(ends.begin(), ends.end(), expected_ends.begin(),
                                expected_ends.end());
}

/// @param save_every  steps between checkpoints on the way; 0: only at the end
inline Program::Outcome resume(const std::string& run, const Words& options = {},
                               const std::string& save_every = "0") {
  Words words = Common::get().lone_command(run, options);
  words.push_back("--run.checkpoint_every=" + save_every);
  words.push_back("--resume");
  return Program(words).wait();
}

}  // namespace smelt::testing
