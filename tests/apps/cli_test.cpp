// Options of programs, --help, --version, exit codes, thread warnings and stop signals.
#include "apps/common/cli.h"

#include <iostream>
#include <new>
#include <sstream>
#include <thread>

#include <boost/test/unit_test.hpp>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/common/config_schema.h"
#include "apps/common/signals.h"

using namespace smelt;

namespace {

OptionTable sample_table() {
  OptionTable table("plan", "Budgets of a configuration.");
  table.with_config({"model", "loop"});
  table.integer("samples", 16, 1, 1000, "samples", "how many samples to draw");
  table.number("mean-context", 0, 0, 1e9, "tokens", "mean attended positions");
  table.word("format", "table", {"table", "csv"}, "form of the output");
  table.text("out", "", "FILE", "where to write");
  table.list("task", "NAME", "tasks to run");
  table.flag("quiet", "say less");
  return table;
}

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;
};

class Captured {
 public:
  Captured() : out_(std::cout.rdbuf(out.rdbuf())), err_(std::cerr.rdbuf(err.rdbuf())) {}
  ~Captured() {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(err_);
  }
  std::ostringstream out, err;

 private:
  std::streambuf* out_;
  std::streambuf* err_;
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return argv;
}

Outcome run(
    const OptionTable& table, std::vector<std::string> words,
    const std::function<int(const Arguments&)>& body = [](const Arguments&) { return 0; }) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv = pointers(words);
  Captured captured;
  const int code = run_program(static_cast<int>(argv.size()), argv.data(), table, body);
  return {code, captured.out.str(), captured.err.str()};
}

Outcome guard(const std::function<int(int, char**)>& body) {
  Captured captured;
  const int code = main_guard(0, nullptr, "test", body);
  return {code, captured.out.str(), captured.err.str()};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cli)

BOOST_AUTO_TEST_CASE(options_have_their_values_or_defaults) {
  const Arguments arguments(sample_table(), {"--samples=7", "--mean-context", "1.5e3", "--quiet",
                                             "--task=a,b", "--task", "c", "--model.top_k=4"});
  BOOST_TEST(arguments.integer("samples") == 7);
  BOOST_TEST(arguments.number("mean-context") == 1500);
  BOOST_TEST(arguments.text("format") == "table");
  BOOST_TEST(arguments.text("out") == "");
  BOOST_TEST(!arguments.given("out"));
  BOOST_TEST(arguments.flag("quiet"));
  BOOST_TEST(!arguments.json());
  BOOST_TEST((arguments.list("task") == std::vector<std::string>{"a", "b", "c"}));
  BOOST_TEST(arguments.config().config.model.top_k == 4);
}

BOOST_AUTO_TEST_CASE(bad_options_are_named_with_what_is_allowed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"--samples=0"}, "--samples=0: must be a whole number from 1 to 1000"},
      {{"--samples=7x"}, "--samples=7x: must be a whole number"},
      {{"--mean-context=nan"}, "--mean-context=nan: must be a number from 0 to 1e+09"},
      {{"--mean-context=-1"}, "must be a number from 0"},
      {{"--format=xml"}, "--format=xml: must be table|csv"},
      {{"--sampels=3"}, "unknown option --sampels; did you mean --samples?"},
      {{"--sample=3"}, "unknown option --sample; did you mean --samples?"},
      {{"--samples=1", "--samples=1"}, "--samples is given twice"},
      {{"--quiet=1"}, "quiet"},
      {{"--out"}, "out"},
      {{"--optim.lr=1"}, "smelt-plan takes no keys of [optim] on its command line"},
      {{"--hidden_size=3"}, "unknown option --hidden_size; did you mean [model] hidden_size?"},
      {{"word"}, "stray word 'word'"}};
  for (const auto& [words, message] : bad) {
    const Outcome outcome = run(sample_table(), words);
    BOOST_TEST(outcome.code == 2);
    BOOST_TEST(contains(outcome.err, message), outcome.err << " lacks " << message);
    BOOST_TEST(outcome.out == "");
  }
}

BOOST_AUTO_TEST_CASE(a_required_option_is_asked_for) {
  OptionTable table("export", "Writes a folder.");
  table.required("checkpoint", "DIR", "what to export");
  BOOST_TEST(contains(run(table, {}).err, "--checkpoint=DIR is required: what to export"));
  BOOST_TEST(run(table, {"--checkpoint=x"}).code == 0);
  BOOST_TEST(run(table, {"--checkpoint="}).code == 2);
}

BOOST_AUTO_TEST_CASE(help_lists_every_option_within_100_columns_before_any_file_is_opened) {
  const OptionTable table = sample_table();
  const Outcome outcome = run(table, {"--config=no/such/file", "--no-such-option", "--help"});
  BOOST_TEST(outcome.code == 0);
  BOOST_TEST(outcome.err == "");
  for (const Option& option : table.options())
    BOOST_TEST(contains(outcome.out, "--" + option.name), option.name);
  for (const ConfigKey& key : config_schema()) {
    const bool listed = contains(outcome.out, "--" + key.name() + "=");
    BOOST_TEST(listed == (key.section == "model" || key.section == "loop"), key.name());
  }
  BOOST_TEST(contains(outcome.out, "[16 samples]"));
  BOOST_TEST(contains(outcome.out, "width of the residual stream [128 features]"));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) BOOST_TEST(line.size() <= 100u, line);
  const std::string all = OptionTable("pretrain", "Trains.").with_config().help();
  for (const ConfigKey& key : config_schema())
    BOOST_TEST(contains(all, "--" + key.name() + "="), key.name());
}

BOOST_AUTO_TEST_CASE(version_is_one_line) {
  const Outcome outcome = run(sample_table(), {"--version"});
  BOOST_TEST(outcome.code == 0);
  BOOST_TEST(outcome.out.rfind("smelt 0.", 0) == 0u);
  BOOST_TEST(outcome.out.find('\n') == outcome.out.size() - 1);
}

BOOST_AUTO_TEST_CASE(dry_run_prints_the_merged_settings_and_runs_nothing) {
  OptionTable table("pretrain", "Trains.");
  table.with_config();
  bool ran = false;
  const Outcome outcome = run(table, {"--dry-run", "--optim.lr=0.5"}, [&](const Arguments&) {
    ran = true;
    return 0;
  });
  BOOST_TEST(!ran);
  BOOST_TEST(outcome.code == 0);
  BOOST_TEST(contains(outcome.out, "lr = 0.5"));
  BOOST_TEST(parse_config(outcome.out).optim.lr == 0.5);
}

BOOST_AUTO_TEST_CASE(errors_become_one_line_and_the_right_code) {
  const auto outcome_of = [](auto error) {
    return guard([&](int, char**) -> int { throw error; });
  };
  BOOST_TEST(outcome_of(ConfigError("a\nb")).err == "smelt-test: error: a b\n");
  BOOST_TEST(outcome_of(ConfigError("a")).code == 2);
  BOOST_TEST(outcome_of(IoError("a")).code == 2);
  BOOST_TEST(outcome_of(RunError("a")).code == 1);
  BOOST_TEST(outcome_of(CommError("a")).code == 1);
  BOOST_TEST(outcome_of(ShapeError("a")).code == 1);
  BOOST_TEST(outcome_of(std::runtime_error("a")).code == 1);
  BOOST_TEST(contains(outcome_of(std::bad_alloc()).err, "out of memory"));
  const Outcome quiet = outcome_of(QuietExit{2});
  BOOST_TEST(quiet.code == 2);
  BOOST_TEST(quiet.err == "");
}

BOOST_AUTO_TEST_CASE(unwritable_output_is_an_error) {
  const Outcome outcome = guard([](int, char**) {
    std::cout.setstate(std::ios::badbit);
    return 0;
  });
  std::cout.clear();
  BOOST_TEST(outcome.code == 1);
  BOOST_TEST(contains(outcome.err, "standard output cannot be written"));
}

BOOST_AUTO_TEST_CASE(failure_hooks_run_around_the_message_with_the_code) {
  std::string order;
  set_failure_hooks(
      {[&] { order += "before "; }, [&](int code) { order += "abort " + std::to_string(code); }});
  guard([](int, char**) { return 0; });
  BOOST_TEST(order == "");
  guard([](int, char**) -> int { throw ConfigError("x"); });
  set_failure_hooks({});
  BOOST_TEST(order == "before abort 2");
}

BOOST_AUTO_TEST_CASE(commands_are_chosen_by_the_first_word) {
  std::string ran;
  const auto remember = [&](const char* name) {
    return [&ran, name](const Arguments&) {
      ran = name;
      return 0;
    };
  };
  const std::vector<Command> commands = {
      {"", OptionTable("plan", "Budgets."), remember("plain")},
      {"match", OptionTable("plan match", "A partner.").required("baseline", "FILE", "INI file"),
       remember("match")}};
  const auto run_words = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "smelt-plan");
    std::vector<char*> argv = pointers(words);
    Captured captured;
    ran.clear();
    const int code = run_commands(static_cast<int>(argv.size()), argv.data(), commands);
    return Outcome{code, captured.out.str(), captured.err.str()};
  };
  BOOST_TEST(run_words({"--json"}).code == 0);
  BOOST_TEST(ran == "plain");
  BOOST_TEST(run_words({"match", "--baseline=x"}).code == 0);
  BOOST_TEST(ran == "match");
  BOOST_TEST(contains(run_words({"--help"}).out, "match"));
  BOOST_TEST(contains(run_words({"match", "--help"}).out, "--baseline=FILE"));
  const Outcome wrong = run_words({"mach"});
  BOOST_TEST(wrong.code == 2);
  BOOST_TEST(contains(wrong.err, "smelt-plan: error: unknown command 'mach'; did you mean match?"));
}

BOOST_AUTO_TEST_CASE(stop_signals_set_the_flag_and_a_second_interrupt_ends_the_process) {
  for (const int number : {SIGTERM, SIGUSR1, SIGINT}) {
    install_stop_signals();
    clear_stop_request();
    BOOST_TEST(!stop_requested());
    raise(number);
    BOOST_TEST(stop_requested());
    BOOST_TEST(stop_signal_name() == (number == SIGTERM   ? "SIGTERM"
                                      : number == SIGUSR1 ? "SIGUSR1"
                                                          : "SIGINT"));
  }
  clear_stop_request();
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGINT);
    raise(SIGINT);
    _exit(0);
  }
  int status = 0;
  BOOST_REQUIRE(waitpid(child, &status, 0) == child);
  BOOST_TEST(WIFEXITED(status));
  BOOST_TEST(WEXITSTATUS(status) == 130);
  for (const int number : {SIGTERM, SIGUSR1, SIGINT}) signal(number, SIG_DFL);
}

BOOST_AUTO_TEST_CASE(a_time_limit_expires_and_zero_is_none) {
  const TimeLimit none(0);
  const TimeLimit brief(0.01);
  const TimeLimit longer(1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  BOOST_TEST(!none.expired());
  BOOST_TEST(!none.expires_within(1e9));
  BOOST_TEST(brief.expired());
  BOOST_TEST(!longer.expired());
  BOOST_TEST(longer.expires_within(1000));
}

BOOST_AUTO_TEST_SUITE_END()
