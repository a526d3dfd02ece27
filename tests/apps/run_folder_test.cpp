// The folder of a run: what is refused, what is kept, and which checkpoint counts.
#include "apps/common/run_folder.h"

#include <filesystem>
#include <fstream>

#include <boost/test/unit_test.hpp>

#include "apps/common/metrics.h"

using namespace smelt;
namespace fs = std::filesystem;

namespace {

struct Fixture {
  Fixture() {
    fs::remove_all("run_folder_test");
    config = parse_config("");
    config.run.dir = "run_folder_test/run";
  }
  ~Fixture() { fs::remove_all("run_folder_test"); }
  RunFolder folder() const { return RunFolder(config.run.dir); }
  void add_checkpoint(const std::string& name) const {
    fs::create_directories(folder().checkpoints() + "/" + name);
  }
  std::string refusal(RunMode mode) const {
    try {
      open_run_folder(config, mode);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  RunConfig config;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(run_folder, Fixture)

BOOST_AUTO_TEST_CASE(a_new_folder_holds_the_resolved_configuration_under_its_header) {
  open_run_folder(config, RunMode::fresh, "smelt 1\n2 ranks");
  const std::string text = read_text_file(folder().config_ini());
  BOOST_TEST(text.rfind("# smelt 1\n# 2 ranks\n[model]\n", 0) == 0u);
  BOOST_TEST(config_differences(parse_config(text), config).empty());
  BOOST_TEST(refusal(RunMode::fresh) == "");  // nothing has run in it yet
}

BOOST_AUTO_TEST_CASE(another_configuration_or_an_earlier_run_is_not_overwritten) {
  open_run_folder(config, RunMode::fresh);
  config.optim.lr = 0.5;
  BOOST_TEST(contains(refusal(RunMode::fresh), "another configuration (optim.lr 0.003 -> 0.5)"));
  config.optim.lr = 0.003;
  append_jsonl(folder().metrics(), {{"step", 1}});
  BOOST_TEST(contains(refusal(RunMode::fresh), "already holds a run; give --resume"));
  std::ofstream(config.run.dir + "/notes.txt") << "mine";
  add_checkpoint("step-5");
  open_run_folder(config, RunMode::overwrite);
  BOOST_TEST(!fs::exists(folder().metrics()));
  BOOST_TEST(!folder().latest_checkpoint().has_value());
  BOOST_TEST(fs::exists(config.run.dir + "/notes.txt"));
}

BOOST_AUTO_TEST_CASE(resuming_finds_the_latest_checkpoint_and_tells_what_changed) {
  BOOST_TEST(!open_run_folder(config, RunMode::resume).resume_from.has_value());
  add_checkpoint("step-100");
  add_checkpoint("step-20");
  config.train.tokens *= 2;
  const OpenedRun run = open_run_folder(config, RunMode::resume);
  BOOST_REQUIRE(run.resume_from.has_value());
  BOOST_TEST(run.resume_from->step == 100);
  BOOST_TEST(run.resume_from->path == folder().checkpoint(100));
  BOOST_REQUIRE_EQUAL(run.differences.size(), 1u);
  BOOST_TEST(run.differences[0].key == "train.tokens");
  config.model.hidden_size = 64;
  BOOST_TEST(contains(refusal(RunMode::resume),
                      "cannot be resumed with another model (model.hidden_size 128 -> 64)"));
}

BOOST_AUTO_TEST_CASE(only_folders_named_step_n_count_as_checkpoints) {
  for (const char* name :
       {"step-3", "step-", "step-x", "step-4x", "step--5", "step-007", "step-+8", ".partial-step-9",
        "step-10.tmp", "Step-11", "step-99999999999999999999"})
    add_checkpoint(name);
  std::ofstream(folder().checkpoints() + "/step-12") << "a file";
  const auto found = folder().list_checkpoints();
  BOOST_REQUIRE_EQUAL(found.size(), 1u);
  BOOST_TEST(found[0].step == 3);
  BOOST_TEST(fs::exists(folder().checkpoint(3)));
}

BOOST_AUTO_TEST_CASE(a_file_in_the_way_is_an_input_error) {
  fs::create_directories("run_folder_test");
  std::ofstream(config.run.dir) << "a file";
  BOOST_CHECK_THROW(open_run_folder(config, RunMode::fresh), IoError);
}

BOOST_AUTO_TEST_SUITE_END()
