#include "apps/plan/matching.h"

#include <algorithm>
#include <numeric>

#include "apps/common/config_schema.h"
#include "apps/common/progress.h"

namespace smelt {
namespace {

/// Applies --fix=KEY (the Baseline's value) or --fix=KEY=VALUE.
void fix(const std::string& text, const RunConfig& baseline, MatchOptions* options) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const ConfigKey* key = find_config_key("model." + name);
  const bool searched = name == "num_kv_heads" || options->grids.count(name) > 0;
  SMELT_CHECK(ConfigError, searched && key != nullptr,
              "--fix=" << text << ": must be hidden_size, expert_hidden_size, num_experts, "
                       << "head_dim or num_kv_heads, with =VALUE for another than the Baseline's");
  RunConfig wanted = baseline;
  SMELT_CHECK(ConfigError, equals == std::string::npos || key->set(wanted, text.substr(equals + 1)),
              "--fix=" << text << ": must be " << key->allowed);
  int64_t value = 0;
  parse_integer(key->get(wanted), &value);
  if (name == "num_kv_heads")
    options->kv_heads = {value};
  else
    options->grids[name] = {value, value, 1};
}

std::string percent(double ratio) { return formatted("%+.2f %%", 100 * (ratio - 1)); }

}  // namespace

void add_matching_options(OptionTable* table) {
  table
      ->number("span", 0.5, 0, 1, "",
               "fraction of the layers that is looped, in the middle; 0: none")
      .integer("visits", 2, 1, 1024, "visits", "how often the span is executed; 1: no loop")
      .integer("depth", 0, 0, 65536, "layers", "physical layers; 0: those of the Baseline")
      .word("order", "span", {"span", "layer"}, "repeat the whole span, or each layer in place")
      .word("kv", "own", {"own", "first"},
            "each visit stores its keys and values, or later visits reuse those of the first")
      .integer("hidden-multiple", 8, 1, 4096, "", "hidden_size is a multiple of this")
      .integer("width-multiple", 8, 1, 4096, "", "expert_hidden_size is a multiple of this")
      .integer("experts-multiple", 0, 0, 4096, "",
               "num_experts is a multiple of this; 0: of 8, or of 1 where the Baseline has fewer "
               "than 16; and of dist.expert_parallel in any case")
      .integer("head-multiple", 2, 2, 4096, "", "head_dim is a multiple of this, an even number")
      .list("fix", "KEY[=VALUE]",
            "do not search this size: hidden_size, expert_hidden_size, num_experts, head_dim, "
            "num_kv_heads; without VALUE it stays the Baseline's")
      .number("tolerance", 1, 0.001, 25, "",
              "scales the allowed deviations, 4 % of F, 1 % of N, 4 % of KV")
      .number("target-flops", 1, 0, 1000, "", "wanted F as a multiple of the Baseline's; 0: free")
      .number("target-params", 1, 0, 1000, "", "wanted N as a multiple of the Baseline's; 0: free")
      .number("target-kv", 1, 0, 1000, "", "wanted cache as a multiple of the Baseline's; 0: free");
}

MatchOptions matching_of(const Arguments& arguments, const RunConfig& baseline) {
  const ModelConfig& model = baseline.model;
  SMELT_CHECK(ConfigError, arguments.integer("head-multiple") % 2 == 0,
              "--head-multiple=" << arguments.integer("head-multiple") << ": must be even");
  MatchMultiples multiples;
  multiples.hidden_size = arguments.integer("hidden-multiple");
  multiples.expert_hidden_size = arguments.integer("width-multiple");
  multiples.num_experts = arguments.integer("experts-multiple");
  multiples.head_dim = arguments.integer("head-multiple");
  MatchOptions options = default_match(model, multiples);
  SizeGrid& experts = options.grids.at("num_experts");
  experts.multiple = std::lcm(experts.multiple, baseline.dist.expert_parallel);

  if (arguments.integer("depth") > 0) options.num_layers = arguments.integer("depth");
  options.loop = span_of(options.num_layers, arguments.number("span"), arguments.integer("visits"));
  options.loop.order = arguments.text("order") == "span" ? LoopOrder::span : LoopOrder::layer;
  options.loop.kv = arguments.text("kv") == "own" ? LoopKv::own : LoopKv::first;

  for (const std::string& text : arguments.list("fix")) fix(text, baseline, &options);
  options.target = {arguments.number("target-flops"), arguments.number("target-params"),
                    arguments.number("target-kv")};
  const double scale = arguments.number("tolerance");
  options.tolerance = {0.04 * scale, 0.01 * scale, 0.04 * scale};
  return options;
}

RunConfig matched_config(const RunConfig& baseline, const Match& match) {
  RunConfig config = baseline;
  config.model = match.config;
  const std::string kind = match.config.loop.layers > 0 ? "smelt" : "control";
  const std::string old = "baseline";
  const size_t at = config.run.dir.rfind(old);
  if (at == std::string::npos)
    config.run.dir += "-" + kind;
  else
    config.run.dir.replace(at, old.size(), kind);
  return config;
}

std::string matched_ini(const LoadedConfig& baseline, const Match& match,
                        const std::string& baseline_name) {
  const RunConfig config = matched_config(baseline.config, match);
  std::set<std::string> keys;
  for (const auto& [key, origin] : baseline.origins)
    if (origin.kind == Origin::Kind::file) keys.insert(key);
  for (const ConfigDifference& difference : config_differences(baseline.config, config))
    keys.insert(difference.key);
  return "# Matched to " + baseline_name + " by smelt-plan at a mean context of " +
         formatted("%.6g", match.budget.mean_context) + ":\n# F " + percent(match.ratio.flops) +
         ", N " + percent(match.ratio.params) + ", KV " + percent(match.ratio.kv) +
         ". Nothing but the model and the run's folder differs.\n\n" + write_ini(config, keys);
}

}  // namespace smelt
