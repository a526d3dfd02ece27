#include "moe/budget.h"

namespace smelt {

Budget budget_of(const ModelConfig& c, double mean_context) {
  const ExecutionPlan plan(c.num_layers, c.loop);
  const int64_t H = c.hidden_size, q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const int64_t expert = 3 * H * c.expert_hidden_size, shared = 3 * H * c.shared_expert_hidden_size;

  Budget budget;
  for (const ExecutionStep& step : plan.steps()) {
    double forward = 4.0 * double(H * q) + 4.0 * double(q) * mean_context +
                     2.0 * double(H * c.num_experts) + 2.0 * double(expert * c.top_k + shared);
    if (step.writes_kv) forward += 4.0 * double(H * kv);
    budget.flops_per_token += 3.0 * forward;
  }
  budget.flops_head = 6.0 * double(H * c.vocab_size);

  const int64_t norms = 2 * H + (c.qk_norm ? 2 * c.head_dim : 0);
  const int64_t dense_layer = 2 * H * q + 2 * H * kv + H * c.num_experts + shared + norms;
  budget.params_non_embedding = c.num_layers * (dense_layer + expert * c.num_experts) + H;
  budget.params_active = c.num_layers * (dense_layer + expert * c.top_k) + H;
  budget.params_total = budget.params_non_embedding + (c.tie_embeddings ? 1 : 2) * H * c.vocab_size;
  budget.kv_values_per_token = 2 * kv * plan.kv_slots();
  budget.executed_depth = plan.executed_depth();
  return budget;
}

}  // namespace smelt
