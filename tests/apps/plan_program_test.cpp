// The program smelt-plan, and the ladders of configurations that it made.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include "apps/common/config.h"
#include "moe/match.h"
#include "tests/apps/program.h"

namespace smelt::testing {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

Outcome run_plan(const ScratchFolder& scratch, const std::string& arguments) {
  return run_command(scratch, join({SMELT_PLAN, " ", arguments}));
}

std::string configs(const std::string& name) {
  return join({SMELT_SOURCE_DIR, "/apps/configs/", name});
}

json::object run_json(const ScratchFolder& scratch, const std::string& arguments) {
  const Outcome outcome = run_plan(scratch, arguments + " --json");
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return json::parse(outcome.out).as_object();
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

/// Names of the cells of a ladder.
std::vector<std::string> cells(const std::string& ladder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(configs(ladder))) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with("-baseline.ini")) names.push_back(name.substr(0, name.size() - 13));
  }
  std::sort(names.begin(), names.end());
  return names;
}

BOOST_AUTO_TEST_SUITE(plan_program)

BOOST_AUTO_TEST_CASE(shows_the_published_baseline) {
  const ScratchFolder scratch;
  const std::string file = configs("ladder/200m-s95-baseline.ini");
  const json::object shown = run_json(scratch, "--config=" + file + " --mean-context=336");
  BOOST_TEST(shown.at("arch").as_string() == "baseline");
  BOOST_CHECK_CLOSE(shown.at("flops_per_token").as_double(), 1.33e9, 0.05);
  BOOST_TEST(shown.at("flops_head").as_double() == 6.0 * 1280 * 32768);
  BOOST_CHECK_CLOSE(double(shown.at("params_non_embedding").as_int64()), 3.87e9, 0.5);
  BOOST_TEST(shown.at("params_total").as_int64() ==
             shown.at("params_non_embedding").as_int64() + 2 * 1280 * 32768);
  BOOST_TEST(shown.at("kv_values_per_token").as_int64() == 7680);
  BOOST_TEST(shown.at("executed_depth").as_int64() == 12);
  BOOST_TEST(shown.at("mean_context").as_double() == 336);
  BOOST_TEST(std::abs(shown.at("sparsity").as_double() - 0.9454) < 2e-4);

  const Outcome text = run_plan(scratch, "--config=" + file + " --mean-context=336");
  BOOST_TEST(text.code == 0);
  BOOST_TEST(text.out.find("3.87G   100.0%") != std::string::npos, text.out);
  BOOST_TEST(widest_line(text.out) <= 100u);
}

BOOST_AUTO_TEST_CASE(the_mean_context_comes_from_an_option_a_file_or_the_sequence) {
  const ScratchFolder scratch;
  const std::string config = "--config=" + configs("nano-baseline.ini");  // seq_len 256
  BOOST_TEST(run_json(scratch, config).at("mean_context").as_double() == 128.5);
  write_tokens(scratch.path("a"), {std::vector<int32_t>(256, 1), std::vector<int32_t>(1, 1)});
  write_tokens(scratch.path("b"), {std::vector<int32_t>(3, 1), std::vector<int32_t>(7, 1)});
  const std::string a = " --data=" + scratch.path("a");
  BOOST_TEST(run_json(scratch, config + a).at("mean_context").as_double() == 128.5);
  // b is shorter than a window: (6 + 28) keys over 10 queries, weighed by its tokens.
  const json::object both = run_json(scratch, config + a + " --data=" + scratch.path("b"));
  BOOST_CHECK_CLOSE(both.at("mean_context").as_double(), (257 * 128.5 + 34) / 267, 1e-10);
  const json::object unmasked =
      run_json(scratch, config + " --train.document_mask=false --data=" + scratch.path("b"));
  BOOST_TEST(unmasked.at("mean_context").as_double() == 5.5);
}

BOOST_AUTO_TEST_CASE(shows_deviations_from_a_baseline) {
  const ScratchFolder scratch;
  const std::string arguments = "--config=" + configs("nano-smelt.ini") +
                                " --baseline=" + configs("nano-baseline.ini") +
                                " --mean-context=128";
  const json::object shown = run_json(scratch, arguments);
  BOOST_TEST(shown.at("arch").as_string() == "smelt");
  BOOST_TEST(std::abs(shown.at("ratio").at("flops").as_double() - 1.005) < 5e-4);
  BOOST_TEST(std::abs(shown.at("ratio").at("params").as_double() - 1.008) < 5e-4);
  BOOST_TEST(shown.at("ratio").at("kv").as_double() == 1);
  const Outcome text = run_plan(scratch, arguments);
  BOOST_TEST(text.out.find("F +0.53 %, N +0.82 %, KV +0.00 %") != std::string::npos, text.out);
}

BOOST_AUTO_TEST_CASE(a_match_is_written_as_a_configuration_with_equal_budgets) {
  const ScratchFolder scratch;
  const std::string baseline = configs("ladder/200m-s95-baseline.ini"),
                    out = scratch.path("smelt.ini");
  const json::object found =
      run_json(scratch, "match --mean-context=336 --baseline=" + baseline + " --out=" + out);
  const LoadedConfig written = load_config(out), original = load_config(baseline);
  BOOST_CHECK_NO_THROW(validate(written, 8));
  const Budget b = budget_of(original.config.model, 336), s = budget_of(written.config.model, 336);
  BOOST_TEST(found.at("smelt").at("flops_per_token").as_double() == s.flops_per_token);
  BOOST_TEST(found.at("smelt").at("params_non_embedding").as_int64() == s.params_non_embedding);
  BOOST_TEST(found.at("baseline").at("flops_per_token").as_double() == b.flops_per_token);
  BOOST_TEST(found.at("smelt").at("executed_depth").as_int64() == 18);
  BOOST_TEST(std::abs(found.at("ratio").at("flops").as_double() - 1) <= 0.04);
  BOOST_TEST(std::abs(found.at("ratio").at("params").as_double() - 1) <= 0.01);
  BOOST_TEST(std::abs(found.at("ratio").at("kv").as_double() - 1) <= 0.04);
  BOOST_TEST(std::abs(found.at("same_widths_ratio").at("flops").as_double() - 1.5) < 1e-9);
  BOOST_TEST(found.at("same_widths_ratio").at("kv").as_double() == 1.5);
  // Nothing but the model, its loop and the run's folder has changed.
  for (const ConfigDifference& difference : config_differences(original.config, written.config)) {
    BOOST_TEST((difference.key.starts_with("model.") || difference.key.starts_with("loop.") ||
                difference.key == "run.dir"),
               difference.key);
  }
  BOOST_TEST(written.config.run.dir == "runs/ladder/200m-s95-smelt");

  // An existing file is kept unless told otherwise.
  const std::string again = "match --visits=1 --baseline=" + baseline + " --out=" + out;
  const std::string before = read_file(out);
  const Outcome refused = run_plan(scratch, again);
  BOOST_TEST(refused.code == 2);
  BOOST_TEST(read_file(out) == before);
  BOOST_TEST(run_plan(scratch, again + " --overwrite").code == 0);
  BOOST_TEST(load_config(out).config.model.loop.layers == 0);
  BOOST_TEST(load_config(out).config.run.dir == "runs/ladder/200m-s95-control");
}

BOOST_AUTO_TEST_CASE(a_match_is_deterministic_and_fits_a_page) {
  const ScratchFolder scratch;
  const std::string arguments = "match --baseline=" + configs("ladder/1600m-s97-baseline.ini");
  const Outcome first = run_plan(scratch, arguments);
  BOOST_TEST(first.code == 0);
  BOOST_TEST(run_plan(scratch, arguments).out == first.out);
  BOOST_TEST(widest_line(first.out) <= 100u, first.out);
  BOOST_TEST(count_of(first.out, "\nmatch ") == 5u);
  BOOST_TEST(first.out.find("1.500 1.000 1.500") != std::string::npos, first.out);
}

BOOST_AUTO_TEST_CASE(sizes_can_be_fixed) {
  const ScratchFolder scratch;
  const json::object found =
      run_json(scratch, "match --baseline=" + configs("ladder/200m-s95-baseline.ini") +
                            " --fix=num_experts=288,num_kv_heads --head-multiple=18");
  const json::object& sizes = found.at("smelt").at("sizes").as_object();
  BOOST_TEST(sizes.at("num_experts").as_int64() == 288);
  BOOST_TEST(sizes.at("num_kv_heads").as_int64() == 4);
  BOOST_TEST(sizes.at("head_dim").as_int64() % 18 == 0);
}

BOOST_AUTO_TEST_CASE(experts_of_a_match_can_be_spread_like_those_of_the_baseline) {
  const ScratchFolder scratch;
  write_file(scratch.path("base.ini"), join({read_file(configs("ladder/200m-s00-baseline.ini"))}));
  std::string text = read_file(scratch.path("base.ini"));
  text.replace(text.find("expert_parallel = 1"), 19, "expert_parallel = 4");
  write_file(scratch.path("base.ini"), text);
  const json::object found =
      run_json(scratch, "match --baseline=" + scratch.path("base.ini") +
                            " --tolerance=2 --out=" + scratch.path("smelt.ini"));
  BOOST_TEST(found.at("smelt").at("sizes").at("num_experts").as_int64() % 4 == 0);
  BOOST_CHECK_NO_THROW(validate(load_config(scratch.path("smelt.ini")), 4));
}

BOOST_AUTO_TEST_CASE(bad_input_ends_with_code_2_and_one_line) {
  const ScratchFolder scratch;
  const std::string baseline = "--baseline=" + configs("nano-baseline.ini");
  const auto refused = [&](const std::string& arguments, const std::string& text) {
    const Outcome outcome = run_plan(scratch, arguments);
    BOOST_TEST_CONTEXT(arguments << ": " << outcome.err) {
      BOOST_TEST(outcome.code == 2);
      BOOST_TEST(outcome.out.empty());
      BOOST_TEST(count_of(outcome.err, "\n") == 1u);
      BOOST_TEST(outcome.err.find(text) != std::string::npos);
    }
  };
  refused("", "--config=FILE is needed");
  refused("--config=" + scratch.path("none.ini"), "none.ini");
  refused("--config=" + configs("nano-smelt.ini") + " --mean-context=-1", "--mean-context=-1");
  refused("--config=" + configs("nano-smelt.ini") + " --mean-context=5 --data=x",
          "exclude each other");
  refused("--config=" + configs("nano-smelt.ini") + " --data=" + scratch.path("none"), "none.idx");
  refused("--config=" + configs("nano-smelt.ini") + " --model.num_kv_heads=3",
          "num_heads must be a multiple of num_kv_heads");
  refused("match", "--baseline");
  refused("match --baseline=" + configs("nano-smelt.ini"), "every layer must run once");
  refused("match " + baseline + " --fix=num_heads", "--fix=num_heads: must be hidden_size");
  refused("match " + baseline + " --fix=head_dim=x", "--fix=head_dim=x: must be a whole number");
  refused("match " + baseline + " --fix=num_kv_heads=4", "num_kv_heads = 4 does not divide");
  refused("match " + baseline + " --span=2", "--span=2");
  refused("match " + baseline + " --head-multiple=3", "must be even");
  refused("match " + baseline + " --fix=hidden_size --fix=expert_hidden_size",
          "no model on the grid is within");
  const std::string layout = "layout --config=" + configs("nano-baseline.ini");
  refused("layout", "--config=FILE is needed");
  refused(layout + " --ranks=3", "dist.expert_parallel = 2 must divide the number of ranks, 3");
  refused(layout + " --ranks=5 --expert-parallel=5", "must be divisible by");
  refused(layout + " --ranks=8 --expert-parallel=1", "must be a multiple of ranks x");
  refused(layout + " --expert-parallel=2", "given without --ranks");
  refused(layout + " --device-memory=0.001 --max-ranks=2", "no layout fits 0.001 GB per rank");
  refused("ladder --dir=" + scratch.path("none"), "is not a folder");
  refused("ladder --dir=" + scratch.path(), "holds no file *-baseline.ini");
  refused("mach", "did you mean match?");
}

BOOST_AUTO_TEST_CASE(the_largest_cells_plan_onto_8_to_64_devices) {
  const ScratchFolder scratch;
  for (const std::string arch : {"baseline", "smelt"}) {
    const std::string arguments =
        join({"layout --config=", configs(join({"ladder/1600m-s97-", arch, ".ini"})),
              " --device-memory=141 --ranks=64"});
    const json::object shown = run_json(scratch, arguments);
    const json::object& best = shown.at("smallest").as_object();
    BOOST_TEST(best.at("ranks").as_int64() >= 8);
    BOOST_TEST(best.at("ranks").as_int64() <= 64);
    BOOST_TEST(best.at("bytes").at("total").as_int64() <= 141000000000);
    const json::object& given = shown.at("layout").as_object();
    BOOST_TEST(given.at("fits").as_bool());
    BOOST_TEST(given.at("ranks").as_int64() == 64);
    BOOST_TEST(given.at("expert_parallel").as_int64() == 8);
    // Half the bandwidth, twice the time.
    const json::object slower = run_json(scratch, arguments + " --bandwidth=25");
    BOOST_CHECK_CLOSE(slower.at("layout").at("communication_seconds").as_double(),
                      2 * given.at("communication_seconds").as_double(), 1e-9);
    const Outcome text = run_plan(scratch, arguments);
    BOOST_TEST(widest_line(text.out) <= 100u);
    BOOST_TEST(text.out.find("smallest that fits") != std::string::npos);
  }
  // A layout that was asked for is shown even where none fits.
  const Outcome small = run_plan(scratch,
                                 "layout --ranks=1 --device-memory=0.001 --max-ranks=2"
                                 " --config=" +
                                     configs("nano-baseline.ini") + " --dist.expert_parallel=1");
  BOOST_TEST(small.code == 0);
  BOOST_TEST(small.out.find("does not fit") != std::string::npos, small.out);
  BOOST_TEST(small.out.find("come closest with") != std::string::npos, small.out);
}

BOOST_AUTO_TEST_CASE(every_smelt_of_both_ladders_has_the_budgets_of_its_baseline) {
  BOOST_TEST(cells("ladder").size() == 16u);
  BOOST_TEST(cells("nano-ladder").size() == 12u);
  for (const std::string ladder : {"ladder", "nano-ladder"}) {
    for (const std::string& cell : cells(ladder)) {
      const RunConfig baseline =
                          load_config(configs(join({ladder, "/", cell, "-baseline.ini"}))).config,
                      smelt = load_config(configs(join({ladder, "/", cell, "-smelt.ini"}))).config;
      // Short documents, the context that the ladder was matched at, and full sequences.
      const double full = double(baseline.train.seq_len + 1) / 2;
      for (const double context : {64.0, ladder == "ladder" ? 336.0 : 256.0, full}) {
        const BudgetTriple ratio =
            budget_ratios(budget_of(smelt.model, context), budget_of(baseline.model, context));
        BOOST_TEST_CONTEXT(cell << " at a mean context of " << context) {
          BOOST_TEST(std::abs(ratio.flops - 1) <= 0.04);
          BOOST_TEST(std::abs(ratio.params - 1) <= 0.01);
          BOOST_TEST(std::abs(ratio.kv - 1) <= 0.04);
        }
      }
      ModelConfig naive = baseline.model;
      naive.loop = smelt.model.loop;
      const BudgetTriple naive_ratio =
          budget_ratios(budget_of(naive, 336), budget_of(baseline.model, 336));
      BOOST_TEST(std::abs(naive_ratio.flops - 1.5) < 1e-9);
      BOOST_TEST(naive_ratio.kv == 1.5);
      // What the cell's name says.
      const double s =
          sparsity(budget_of(baseline.model, 336), budget_of(control_of(baseline.model), 336));
      const double named = std::stod(cell.substr(cell.size() - 2)) / 100;
      BOOST_TEST(std::abs(s - named) < 0.02, cell << " has S = " << s);
      for (const RunConfig* config : {&baseline, &smelt}) {
        BOOST_CHECK_NO_THROW(validate(*config, int(config->dist.expert_parallel)));
        BOOST_CHECK_NO_THROW(validate_data(*config));
        BOOST_TEST(config->optim.branch_tokens.size() == 5u);  // six end points with the trunk's
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_shipped_ladders_are_what_the_matcher_gives) {
  const ScratchFolder scratch;
  for (const std::string ladder : {"ladder", "nano-ladder"}) {
    const std::string copy = scratch.path(ladder);
    fs::create_directories(copy);
    for (const std::string& cell : cells(ladder))
      fs::copy(configs(join({ladder, "/", cell, "-baseline.ini"})), copy);
    const Outcome made =
        run_plan(scratch, "ladder --write --dir=" + copy +
                              (ladder == "ladder" ? " --mean-context=336"
                                                  : " --mean-context=256 --hidden-multiple=4 "
                                                    "--width-multiple=4"));
    BOOST_REQUIRE_MESSAGE(made.code == 0, made.err);
    BOOST_TEST(widest_line(made.out) <= 100u);
    for (const std::string& cell : cells(ladder)) {
      const std::string name = join({"/", cell, "-smelt.ini"});
      BOOST_TEST(read_file(copy + name) == read_file(configs(ladder + name)), cell);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_tables_of_the_documentation_are_those_of_the_program) {
  const ScratchFolder scratch;
  const std::string page = read_file(join({SMELT_SOURCE_DIR, "/docs/budgets.md"}));
  for (const std::string arguments :
       {"ladder --mean-context=336", "nano-ladder --mean-context=256"}) {
    const Outcome table = run_plan(scratch, "ladder --markdown --dir=" + configs(arguments));
    BOOST_REQUIRE_MESSAGE(table.code == 0, table.err);
    BOOST_TEST((page.find(table.out) != std::string::npos), table.out);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
