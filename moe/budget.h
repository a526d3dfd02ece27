// The three budgets of a configuration that a fair comparison holds equal, from its ExecutionPlan:
// training FLOPs per token, parameters, and cached keys and values per token.
#pragma once

#include "moe/config.h"
#include "nn/execution_plan.h"

namespace smelt {

struct Budget {
  /// Training FLOPs per token (forward + backward = 3 x forward) without embedding and head, summed
  /// over executed steps. A product [1, n] x [n, m] costs 2 n m. Per step, with c the mean number
  /// of keys that a query sees:
  ///   q, o: 4 H A D;  k, v where stored: 4 H K D;  scores and mix: 4 A D c;  router: 2 H E;
  ///   experts: 6 H F top_k;  shared expert: 6 H F_s.
  double flops_per_token = 0;
  double flops_head = 0;  // 3 * 2 H V
  int64_t params_total = 0;
  int64_t params_non_embedding = 0;  // without embedding and head; every expert and tied layer once
  int64_t params_active = 0;        // of these, what one traversal of the stack uses: top_k experts
  int64_t kv_values_per_token = 0;  // 2 K D per cache slot
  int64_t executed_depth = 0;
};

/// @param mean_context mean number of keys that a query sees, e.g. (seq_len + 1) / 2 for full
/// causal
Budget budget_of(const ModelConfig& config, double mean_context);

}  // namespace smelt
