#include "apps/plan/common.h"

#include <algorithm>
#include <cstdio>

#include "apps/common/budget_json.h"
#include "apps/common/dataset.h"
#include "apps/common/progress.h"

namespace smelt {
void add_context_options(OptionTable* table) {
  table->number("mean-context", 0, 0, 1e9, "keys",
                "mean number of keys that a query sees; 0: from --data, or (seq_len + 1) / 2");
  table->list(
      "data", "PREFIX",
      "token files whose documents, cut into windows of train.seq_len, give the mean context");
}

MeanContext mean_context_of(const Arguments& arguments, const TrainConfig& train) {
  const double given = arguments.number("mean-context");
  const std::vector<std::string> prefixes = arguments.list("data");
  SMELT_CHECK(ConfigError, given == 0 || prefixes.empty(),
              "--mean-context and --data exclude each other");
  if (given > 0) return {given, "given"};
  const std::string length = std::to_string(train.seq_len);
  if (prefixes.empty())
    return {double(train.seq_len + 1) / 2, "full causal sequences of " + length + " tokens"};
  double keys = 0, tokens = 0;
  for (const std::string& prefix : prefixes) {
    const TokenFile file(prefix);
    keys += double(file.tokens()) * mean_context(file, train.seq_len, train.document_mask);
    tokens += double(file.tokens());
  }
  return {keys / tokens, std::string(train.document_mask ? "documents" : "tokens") +
                             " of --data in windows of " + length + " tokens"};
}

namespace {

LoadedConfig valid(LoadedConfig loaded) {
  loaded.config.run.device = DeviceKind::cpu;  // planning needs no device
  validate(loaded, int(loaded.config.dist.expert_parallel));
  return loaded;
}

boost::json::object sizes_json(const ModelConfig& c) {
  const ExecutionPlan plan(c.num_layers, c.loop);
  return {{"hidden_size", c.hidden_size},
          {"num_layers", c.num_layers},
          {"num_heads", c.num_heads},
          {"num_kv_heads", c.num_kv_heads},
          {"head_dim", c.head_dim},
          {"num_experts", c.num_experts},
          {"top_k", c.top_k},
          {"expert_hidden_size", c.expert_hidden_size},
          {"loop_start", plan.span_begin()},
          {"loop_layers", plan.span_end() - plan.span_begin()},
          {"visits", plan.visits()}};
}

}  // namespace

LoadedConfig load_valid_config(const std::string& path) { return valid(load_config(path)); }

LoadedConfig valid_config(const Arguments& arguments) {
  SMELT_CHECK(ConfigError, !arguments.config_file().empty() || !arguments.config_settings().empty(),
              "--config=FILE is needed (or [model] keys such as --model.hidden_size)");
  return valid(arguments.config());
}

boost::json::object planned_json(const ModelConfig& config, const Budget& budget,
                                 const Budget& control) {
  boost::json::object entry = budget_json(config, budget, control);
  entry["sizes"] = sizes_json(config);
  return entry;
}

boost::json::object ratio_json(const BudgetTriple& ratio) {
  return {{"flops", ratio.flops}, {"params", ratio.params}, {"kv", ratio.kv}};
}

ModelTable::ModelTable(bool markdown) : markdown_(markdown) {
  rows_.push_back({"model", "hidden", "layers", "heads", "experts", "width", "active", "N", "F",
                   "KV", "F x", "N x", "KV x", "S %"});
}

void ModelTable::add(const std::string& name, const ModelConfig& c, const Budget& budget,
                     double sparsity, const Budget* reference) {
  std::string layers = std::to_string(c.num_layers);
  if (budget.executed_depth != c.num_layers) layers += "/" + std::to_string(budget.executed_depth);
  std::vector<std::string> row = {name,
                                  std::to_string(c.hidden_size),
                                  layers,
                                  std::to_string(c.num_heads) + "/" +
                                      std::to_string(c.num_kv_heads) + "/" +
                                      std::to_string(c.head_dim),
                                  std::to_string(c.num_experts),
                                  std::to_string(c.expert_hidden_size),
                                  four_digits(double(budget.params_active)),
                                  four_digits(double(budget.params_non_embedding)),
                                  four_digits(budget.flops_per_token),
                                  std::to_string(budget.kv_values_per_token)};
  if (reference != nullptr) {
    const BudgetTriple ratio = budget_ratios(budget, *reference);
    for (const double x : {ratio.flops, ratio.params, ratio.kv})
      row.push_back(formatted("%.3f", x));
  } else {
    row.resize(row.size() + 3);
  }
  row.push_back(formatted("%.1f", 100 * sparsity));
  rows_.push_back(std::move(row));
}

std::string ModelTable::text() const {
  std::string text;
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (markdown_) {
        line += "| " + row[i] + (row[i].empty() ? "" : " ");
      } else {
        const std::string blanks(widths[i] - row[i].size(), ' ');
        line += i == 0 ? row[i] + blanks : " " + blanks + row[i];
      }
    }
    if (markdown_) line += "|";
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    if (markdown_ && &row == &rows_.front()) {
      text += "|---|";
      for (size_t i = 1; i < row.size(); ++i) text += "---:|";
      text += "\n";
    }
  }
  return text;
}

void print(const Arguments& arguments, const std::string& text) {
  std::fputs(text.c_str(), arguments.json() ? stderr : stdout);
}

}  // namespace smelt
