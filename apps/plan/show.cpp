// smelt-plan: where the FLOPs, the parameters and the cache of one configuration go.
#include <cstdio>
#include <iostream>

#include "apps/common/budget_json.h"
#include "apps/common/metrics.h"
#include "apps/common/progress.h"
#include "apps/plan/common.h"

namespace smelt {
namespace {

std::string line(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return std::string(text) + "\n";
}

/// Parameters and training FLOPs of a part, as numbers and as shares of N and F.
std::string part(const char* name, int64_t params, double flops, const Budget& b) {
  const auto cell = [](double value, double whole) {
    char text[64];
    if (value == 0) return std::string(21, ' ');
    std::snprintf(text, sizeof text, "%12s %7.1f%%", human_count(value).c_str(),
                  100 * value / whole);
    return std::string(text);
  };
  std::string text =
      line("  %-32s%s%s", name, cell(double(params), double(b.params_non_embedding)).c_str(),
           cell(flops, b.flops_per_token).c_str());
  text.erase(text.find_last_not_of(" \n") + 1);
  return text + "\n";
}

std::string describe(const ModelConfig& c, const Budget& b, const MeanContext& context) {
  const long long kv = b.kv_values_per_token;
  std::string text =
      line("%s: %lld layers, %lld executed (looped layers x visits: %s), hidden %lld", arch_name(c),
           static_cast<long long>(c.num_layers), static_cast<long long>(b.executed_depth),
           loop_text(c).c_str(), static_cast<long long>(c.hidden_size)) +
      line("%lld query and %lld key-value heads of %lld; %lld experts of width %lld, top-%lld",
           static_cast<long long>(c.num_heads), static_cast<long long>(c.num_kv_heads),
           static_cast<long long>(c.head_dim), static_cast<long long>(c.num_experts),
           static_cast<long long>(c.expert_hidden_size), static_cast<long long>(c.top_k)) +
      line("mean context %.6g (%s)\n", context.keys, context.source.c_str()) +
      line("  %-32s%12s %8s%12s %8s", "", "parameters", "of N", "FLOPs/token", "of F");
  text += part("attention: projections", b.params.attention, b.flops.projections, b);
  text += part("attention: scores and mix", 0, b.flops.attention, b);
  text += part("router", b.params.router, b.flops.router, b);
  text += part(c.shared_expert_hidden_size > 0 ? "experts, shared ones included" : "experts",
               b.params.experts + b.params.shared_experts, b.flops.experts, b);
  text += part("norms", b.params.norms, 0, b);
  text += part("N, F: without embedding and head", b.params_non_embedding, b.flops_per_token, b);
  text += part("embedding and head", b.params.embedding + b.params.head, b.flops_head, b);
  text += part("total", b.params_total, b.flops_per_token + b.flops_head, b);
  text += part("active in one traversal", b.params_active, 0, b);
  text += line("\ncache  %lld values per token: %s in bf16, %s in f32", kv,
               human_bytes(2.0 * double(kv)).c_str(), human_bytes(4.0 * double(kv)).c_str());
  return text;
}

int show(const Arguments& arguments) {
  const LoadedConfig loaded = valid_config(arguments);
  const ModelConfig& config = loaded.config.model;
  const MeanContext context = mean_context_of(arguments, loaded.config.train);
  const Budget budget = budget_of(config, context.keys);

  const std::string baseline_file = arguments.text("baseline");
  const ModelConfig baseline =
      baseline_file.empty() ? config : load_valid_config(baseline_file).config.model;
  const Budget reference = budget_of(baseline, context.keys);
  const Budget control = budget_of(control_of(baseline), context.keys);

  boost::json::object document = budget_json(config, budget, control);
  std::string text = describe(config, budget, context);
  text +=
      line("S      %.2f %%: as %s parameters of the fully active control (%s of %s, %lld experts)",
           100 * sparsity(budget, control),
           human_count(budget.flops_per_token / control.flops_per_token *
                       double(control.params_non_embedding))
               .c_str(),
           baseline_file.empty() ? "the same widths" : "the Baseline",
           human_count(double(control.params_non_embedding)).c_str(),
           static_cast<long long>(baseline.top_k));
  if (!baseline_file.empty()) {
    const BudgetTriple ratio = budget_ratios(budget, reference);
    document["ratio"] = ratio_json(ratio);
    text += line("against %s: F %+.2f %%, N %+.2f %%, KV %+.2f %%", baseline_file.c_str(),
                 100 * (ratio.flops - 1), 100 * (ratio.params - 1), 100 * (ratio.kv - 1));
  }
  print(arguments, text);
  if (arguments.json()) std::cout << json_line(document) << "\n";
  return 0;
}

}  // namespace

OptionTable show_options() {
  OptionTable table("plan",
                    "What a configuration costs, before anything is trained: training FLOPs per "
                    "token (F), parameters without embedding and head (N), active parameters, "
                    "cached values per token, executed depth and compute-equivalent sparsity (S).");
  table.with_config({"model", "loop", "train", "dist"});
  add_context_options(&table);
  table.text("baseline", "", "FILE",
             "compare with this configuration; S then refers to its fully active control");
  return table;
}

int run_show(const Arguments& arguments) { return show(arguments); }

}  // namespace smelt
