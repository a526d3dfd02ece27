// smelt-plan match: the SMELT, ablation or control with the budgets of a Baseline.
#include <filesystem>
#include <iostream>

#include "apps/common/budget_json.h"
#include "apps/common/metrics.h"
#include "apps/common/output_file.h"
#include "apps/common/progress.h"
#include "apps/plan/common.h"
#include "apps/plan/matching.h"

namespace smelt {

OptionTable match_options() {
  OptionTable table(
      "plan match",
      "Finds the model with the budgets of a Baseline (training FLOPs per token, parameters "
      "without embedding and head, cached values per token) among widths, experts, head sizes "
      "and key-value heads, and writes its configuration. By default a SMELT: the middle half of "
      "the layers "
      "executed twice. Other spans, visits and depths give ablations; --visits=1 with targets and "
      "--fix gives controls, e.g. --visits=1 --target-params=1.5 --fix=hidden_size "
      "--fix=expert_hidden_size --fix=head_dim --fix=num_kv_heads adds only experts.");
  table.required("baseline", "FILE", "configuration of the Baseline");
  table.text("out", "", "FILE", "write the best match as a configuration");
  table.flag("overwrite", "replace an existing --out file");
  add_context_options(&table);
  add_matching_options(&table);
  table.integer("count", 5, 1, 100, "models", "how many of the best to print");
  return table;
}

int run_match(const Arguments& arguments) {
  namespace json = boost::json;
  const std::string file = arguments.text("baseline"), out = arguments.text("out");
  const LoadedConfig baseline = load_valid_config(file);
  const ModelConfig& model = baseline.config.model;
  SMELT_CHECK(
      ConfigError, std::string(arch_name(model)) == "baseline",
      file << ": the loop " << loop_text(model) << " is no Baseline's; every layer must run once");
  SMELT_CHECK(ConfigError,
              out.empty() || arguments.flag("overwrite") || !std::filesystem::exists(out),
              "--out=" << out << ": exists; --overwrite replaces it");
  const MeanContext context = mean_context_of(arguments, baseline.config.train);
  MatchOptions options = matching_of(arguments, baseline.config);
  options.count = size_t(arguments.integer("count"));
  const std::vector<Match> matches = match_budgets(model, context.keys, options);

  const Budget reference = budget_of(model, context.keys);
  const Budget control = budget_of(control_of(model), context.keys);
  // What the loop would cost without a match: the Baseline's own widths.
  ModelConfig naive = model;
  naive.num_layers = options.num_layers;
  naive.loop = options.loop;
  const Budget naive_budget = budget_of(naive, context.keys);

  ModelTable table;
  table.add("Baseline", model, reference, sparsity(reference, control), nullptr);
  if (naive_budget.executed_depth != reference.executed_depth)
    table.add("same widths", naive, naive_budget, sparsity(naive_budget, control), &reference);
  json::array candidates;
  for (const Match& match : matches) {
    const double s = sparsity(match.budget, control);
    table.add("match " + std::to_string(candidates.size() + 1), match.config, match.budget, s,
              &reference);
    json::object entry = planned_json(match.config, match.budget, control);
    entry["ratio"] = ratio_json(match.ratio);
    entry["cost"] = match.cost;
    candidates.push_back(entry);
  }
  print(arguments, "mean context " + formatted("%.6g", context.keys) + " (" + context.source +
                       ")\nF and N without embedding and head, KV in values per token\n\n" +
                       table.text());
  if (!out.empty()) {
    write_file(out, matched_ini(baseline, matches.front(),
                                std::filesystem::path(file).filename().string()));
    print(arguments, "\nwrote match 1 to " + out + "\n");
  }
  if (arguments.json()) {
    json::object best = candidates.front().as_object();
    const json::object document{
        {"baseline", planned_json(model, reference, control)},
        {"smelt", best},
        {"ratio", best.at("ratio")},
        {"same_widths_ratio", ratio_json(budget_ratios(naive_budget, reference))},
        {"candidates", candidates}};
    std::cout << json_line(document) << "\n";
  }
  return 0;
}

}  // namespace smelt
