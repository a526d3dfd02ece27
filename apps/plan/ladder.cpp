// smelt-plan ladder: a folder of Baselines and their matches as one table.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "apps/common/metrics.h"
#include "apps/common/output_file.h"
#include "apps/plan/common.h"
#include "apps/plan/matching.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;

constexpr char kBaseline[] = "-baseline.ini";

/// Names of the cells, by their Baselines' parameters: SCALE-sSS of SCALE-sSS-baseline.ini.
std::vector<std::string> cells_of(const std::string& dir) {
  SMELT_CHECK(IoError, fs::is_directory(dir), "--dir=" << dir << ": is not a folder");
  std::vector<std::pair<int64_t, std::string>> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(kBaseline)) continue;
    const ModelConfig model = load_config(entry.path().string()).config.model;
    found.emplace_back(budget_of(model, 0).params_active * 1024 + model.num_experts,
                       name.substr(0, name.size() - sizeof kBaseline + 1));
  }
  SMELT_CHECK(IoError, !found.empty(), "--dir=" << dir << ": holds no file *" << kBaseline);
  std::sort(found.begin(), found.end());
  std::vector<std::string> cells;
  for (const auto& [key, name] : found) cells.push_back(name);
  return cells;
}

}  // namespace

OptionTable ladder_options() {
  OptionTable table("plan ladder",
                    "Shows the budgets of a folder of configurations CELL-baseline.ini and "
                    "CELL-smelt.ini as one table. With --write every CELL-smelt.ini is first "
                    "matched anew to its Baseline.");
  table.required("dir", "DIR", "folder of configurations, e.g. apps/configs/ladder");
  table.flag("write", "match every Baseline and write the SMELTs");
  table.flag("markdown", "a table of Markdown");
  add_context_options(&table);
  add_matching_options(&table);
  return table;
}

int run_ladder(const Arguments& arguments) {
  const std::string dir = arguments.text("dir");
  ModelTable table(arguments.flag("markdown"));
  boost::json::array rows;
  for (const std::string& cell : cells_of(dir)) {
    const std::string baseline_name = cell + kBaseline;
    const std::string smelt_file = dir + "/" + cell + "-smelt.ini";
    const LoadedConfig baseline = load_valid_config(dir + "/" + baseline_name);
    const ModelConfig& model = baseline.config.model;
    const MeanContext context = mean_context_of(arguments, baseline.config.train);
    if (arguments.flag("write")) {
      const std::vector<Match> matches =
          match_budgets(model, context.keys, matching_of(arguments, baseline.config));
      write_file(smelt_file, matched_ini(baseline, matches.front(), baseline_name));
    }
    const ModelConfig smelt = load_valid_config(smelt_file).config.model;
    const Budget reference = budget_of(model, context.keys),
                 budget = budget_of(smelt, context.keys);
    const Budget control = budget_of(control_of(model), context.keys);
    table.add(cell, model, reference, sparsity(reference, control), nullptr);
    table.add("  smelt", smelt, budget, sparsity(budget, control), &reference);
    rows.push_back(boost::json::object{{"cell", cell},
                                       {"baseline", planned_json(model, reference, control)},
                                       {"smelt", planned_json(smelt, budget, control)},
                                       {"ratio", ratio_json(budget_ratios(budget, reference))}});
  }
  print(arguments, table.text());
  if (arguments.json()) std::cout << json_line(rows) << "\n";
  return 0;
}

}  // namespace smelt
