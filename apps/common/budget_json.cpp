#include "apps/common/budget_json.h"

namespace smelt {

const char* arch_name(const ModelConfig& config) {
  return config.loop.layers > 0 && config.loop.visits > 1 ? "smelt" : "baseline";
}

std::string loop_text(const ModelConfig& config) {
  const ExecutionPlan plan(config.num_layers, config.loop);
  if (plan.span_begin() == plan.span_end()) return "none";
  return std::to_string(plan.span_begin()) + "-" + std::to_string(plan.span_end() - 1) + " x " +
         std::to_string(plan.visits());
}

boost::json::object budget_json(const ModelConfig& config, const Budget& budget,
                                const Budget& control) {
  return {{"arch", arch_name(config)},
          {"flops_per_token", budget.flops_per_token},
          {"flops_head", budget.flops_head},
          {"params_total", budget.params_total},
          {"params_non_embedding", budget.params_non_embedding},
          {"params_active", budget.params_active},
          {"kv_values_per_token", budget.kv_values_per_token},
          {"executed_depth", budget.executed_depth},
          {"sparsity", sparsity(budget, control)},
          {"mean_context", budget.mean_context}};
}

}  // namespace smelt
