#include "apps/common/budget_json.h"

namespace smelt {

const char* arch_name(const ModelConfig& config) {
  return config.loop.layers > 0 && config.loop.visits > 1 ? "smelt" : "baseline";
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
