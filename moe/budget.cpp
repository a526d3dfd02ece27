#include "moe/budget.h"

namespace smelt {

Budget budget_of(const ModelConfig& config, double mean_context) {
  return budget_of(config, ExecutionPlan(config.num_layers, config.loop), mean_context);
}

Budget budget_of(const ModelConfig& c, const ExecutionPlan& plan, double mean_context) {
  const int64_t H = c.hidden_size, q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const int64_t expert = 3 * H * c.expert_hidden_size, shared = 3 * H * c.shared_expert_hidden_size;
  const int64_t depth = plan.executed_depth(), slots = plan.kv_slots(), layers = c.num_layers;

  Budget budget;
  FlopParts& flops = budget.flops;
  flops.projections =
      3.0 * (4.0 * double(H * q) * double(depth) + 4.0 * double(H * kv) * double(slots));
  flops.attention = 3.0 * 4.0 * double(q) * mean_context * double(depth);
  flops.router = 3.0 * 2.0 * double(H * c.num_experts) * double(depth);
  flops.experts = 3.0 * 2.0 * double(expert * c.top_k + shared) * double(depth);
  budget.flops_per_token = flops.total();
  budget.flops_head = 3.0 * 2.0 * double(H * c.vocab_size);

  ParameterParts& params = budget.params;
  params.attention = layers * (2 * H * q + 2 * H * kv);
  params.router = layers * H * c.num_experts;
  params.experts = layers * expert * c.num_experts;
  params.shared_experts = layers * shared;
  const int64_t qk_gains = c.qk_norm == QkNorm::none   ? 0
                           : c.qk_norm == QkNorm::head ? 2 * c.head_dim
                                                       : q + kv;
  params.norms = layers * (2 * H + qk_gains) + H;
  params.embedding = H * c.vocab_size;
  params.head = c.tie_embeddings ? 0 : params.embedding;
  budget.params_non_embedding = params.non_embedding();
  budget.params_total = params.non_embedding() + params.embedding + params.head;
  budget.params_active = params.non_embedding() - layers * expert * (c.num_experts - c.top_k);

  budget.kv_values_per_token = 2 * kv * slots;
  budget.executed_depth = depth;
  budget.mean_context = mean_context;
  return budget;
}

ModelConfig control_of(const ModelConfig& config) {
  ModelConfig control = config;
  control.loop = {};
  control.num_experts = config.top_k;
  return control;
}

double sparsity(const Budget& budget, const Budget& control) {
  const double equivalent =
      budget.flops_per_token / control.flops_per_token * double(control.params_non_embedding);
  return 1 - equivalent / double(budget.params_non_embedding);
}

}  // namespace smelt
