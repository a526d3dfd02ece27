// metrics.jsonl and what is shown on the console.
#include "apps/common/metrics.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include <boost/test/unit_test.hpp>

#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "tensor/error.h"

using namespace smelt;
namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Folder {
  Folder() : path("metrics_test_folder") {
    fs::remove_all(path);
    fs::create_directory(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

void write_steps(const std::string& path, int from, int to) {
  MetricsWriter writer(path);
  for (int step = from; step <= to; ++step) writer.write({{"step", step}, {"loss", 1.0 / step}});
}

std::vector<int64_t> steps_of(const std::string& path) {
  std::vector<int64_t> steps;
  for (const json::object& line : read_jsonl(path)) steps.push_back(line.at("step").as_int64());
  return steps;
}

std::string shown(bool terminal, const std::vector<StepReport>& reports, bool logged) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, terminal, 60);
    for (const StepReport& report : reports) progress.step(report, logged);
    progress.note("saved");
  }
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(metrics)

BOOST_AUTO_TEST_CASE(values_that_are_not_finite_become_null_at_any_depth) {
  const json::object line = {
      {"loss", kNan}, {"load", {1.5, kInf, {{"x", -kInf}}}}, {"step", 3}, {"mfu", nullptr}};
  const json::value again = json::parse(json_line(line));
  BOOST_TEST(again.at("loss").is_null());
  BOOST_TEST(again.at("mfu").is_null());
  BOOST_TEST(again.at("load").at(0).as_double() == 1.5);
  BOOST_TEST(again.at("load").at(1).is_null());
  BOOST_TEST(again.at("load").at(2).at("x").is_null());
  BOOST_TEST(again.at("step").as_int64() == 3);
}

BOOST_AUTO_TEST_CASE(each_line_is_whole_as_soon_as_it_is_written) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsWriter writer(path);
  for (int step = 1; step <= 3; ++step) {
    writer.write({{"step", step}, {"loss", 0.1}});
    BOOST_TEST(read_jsonl(path).size() == static_cast<size_t>(step));
    BOOST_TEST(read_text_file(path).back() == '\n');
  }
  BOOST_TEST(read_jsonl(path)[0].at("loss").as_double() == 0.1);
}

BOOST_AUTO_TEST_CASE(a_resumed_run_holds_each_step_once) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  write_steps(path, 1, 9);
  std::ofstream(path, std::ios::app) << "{\"step\":10,\"lo";  // killed inside a write
  BOOST_TEST(truncate_metrics(path, 6) == 4);
  write_steps(path, 7, 8);
  BOOST_TEST((steps_of(path) == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  BOOST_TEST(truncate_metrics(path, 8) == 0);
  BOOST_TEST(truncate_metrics(path, 0) == 8);
  BOOST_TEST(steps_of(path).empty());
  BOOST_TEST(truncate_metrics(folder / "missing.jsonl", 3) == 0);
  BOOST_TEST(!fs::exists(folder / "missing.jsonl"));
}

BOOST_AUTO_TEST_CASE(damaged_lines_are_named) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  const auto message_of = [&](const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    try {
      truncate_metrics(path, 1);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  BOOST_TEST(message_of("{\"step\":1}\n{\"st\n").rfind(path + ":2: must be a JSON object", 0) ==
             0u);
  BOOST_TEST(message_of("[1]\n").rfind(path + ":1: must be a JSON object", 0) == 0u);
  BOOST_TEST(message_of("{\"loss\":1}\n") == path + ":1: \"step\" must be a whole number");
  BOOST_CHECK_THROW(read_jsonl(folder / "none.jsonl"), IoError);
  BOOST_CHECK_THROW(MetricsWriter("no/such/folder/metrics.jsonl"), IoError);
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_an_error_of_the_run) {
  if (!fs::exists("/dev/full")) return;
  BOOST_CHECK_THROW(append_jsonl("/dev/full", {{"step", 1}}), RunError);
}

BOOST_AUTO_TEST_CASE(end_points_are_appended) {
  const Folder folder;
  const std::string path = folder / "endpoints.jsonl";
  append_jsonl(path, {{"arch", "smelt"}});
  append_jsonl(path, {{"arch", "baseline"}});
  const auto lines = read_jsonl(path);
  BOOST_REQUIRE_EQUAL(lines.size(), 2u);
  BOOST_TEST(lines[1].at("arch").as_string() == "baseline");
}

BOOST_AUTO_TEST_CASE(memory_follows_an_allocation) {
  const MemoryUse before = memory_use();
  BOOST_TEST(before.current_bytes > 0);
  {
    const std::vector<char> block(64 << 20, 1);
    BOOST_TEST(memory_use().current_bytes > before.current_bytes + (48 << 20));
  }
  BOOST_TEST(memory_use().peak_bytes >= before.current_bytes + (48 << 20));
}

BOOST_AUTO_TEST_CASE(quantities_are_short_and_carry_their_unit) {
  BOOST_TEST(human_count(0) == "0");
  BOOST_TEST(human_count(950) == "950");
  BOOST_TEST(human_count(1200) == "1.2k");
  BOOST_TEST(human_count(41234) == "41.2k");
  BOOST_TEST(human_count(999.7) == "1k");
  BOOST_TEST(human_count(3.4e6) == "3.4M");
  BOOST_TEST(human_count(1.93e12) == "1.93T");
  BOOST_TEST(human_count(kNan) == "-");
  BOOST_TEST(human_bytes(512) == "512 B");
  BOOST_TEST(human_bytes(1536) == "1.5 KiB");
  BOOST_TEST(human_bytes(1010 * 1024.0) == "1010 KiB");
  BOOST_TEST(human_bytes(11.3 * 1024 * 1024 * 1024) == "11.3 GiB");
  BOOST_TEST(human_duration(4.21) == "4.2s");
  BOOST_TEST(human_duration(59.99) == "1m00s");
  BOOST_TEST(human_duration(125) == "2m05s");
  BOOST_TEST(human_duration(7500) == "2h05m");
  BOOST_TEST(human_duration(273600) == "3d04h");
  BOOST_TEST(human_duration(kInf) == "-");
}

BOOST_AUTO_TEST_CASE(a_step_is_one_line_and_leaves_out_what_does_not_exist) {
  StepReport report;
  report.step = 1200;
  report.total_steps = 20000;
  report.tokens = 19660800;
  report.total_tokens = 327680000;
  report.loss = 3.412;
  report.grad_norm = 0.83;
  report.lr = 2.9e-4;
  report.tokens_per_second = 41200;
  BOOST_TEST(step_line(report) ==
             "step 1200/20000 | loss 3.4120 | gnorm 0.83 | lr 2.9e-04 | 41.2k tok/s");
  report.flops_per_second = 1.9e12;
  report.memory_bytes = 11.3 * 1024 * 1024 * 1024;
  report.aux_loss = 1.04;
  report.load_max_over_mean = 1.31;
  BOOST_TEST(step_line(report) ==
             "step 1200/20000 | loss 3.4120 | gnorm 0.83 | lr 2.9e-04 | 41.2k tok/s | 1.9TFLOP/s | "
             "mem 11.3 GiB | aux 1.040 | load 1.31");
  BOOST_TEST(progress_line(report) ==
             "step 1200/20000 6% | 19.7M tokens | loss 3.4120 | 41.2k tok/s | ETA 2h04m");
}

BOOST_AUTO_TEST_CASE(a_terminal_rewrites_one_line_and_a_file_gets_logged_steps_only) {
  StepReport first;
  first.step = 1;
  first.total_steps = 2;
  first.loss = 2;
  StepReport second = first;
  second.step = 2;
  BOOST_TEST(shown(false, {first, second}, true) ==
             "step 1/2 | loss 2.0000\nstep 2/2 | loss 2.0000\nsaved\n");
  BOOST_TEST(shown(false, {first, second}, false) == "saved\n");
  const std::string terminal = shown(true, {first, second}, false);
  BOOST_TEST(std::count(terminal.begin(), terminal.end(), '\n') == 1);
  BOOST_TEST(std::count(terminal.begin(), terminal.end(), '\r') == 3);
}

BOOST_AUTO_TEST_SUITE_END()
