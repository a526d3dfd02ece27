// The three budgets of a configuration that a fair comparison holds equal, from its ExecutionPlan:
// training FLOPs per token, parameters, and cached keys and values per token; and the
// compute-equivalent sparsity made of them. docs/budgets.md works an example.
#pragma once

#include "moe/config.h"
#include "nn/execution_plan.h"

namespace smelt {

/// Training FLOPs per token by part, forward + backward = 3 x forward, summed over the executed
/// steps. A product [1, n] x [n, m] costs 2 n m. With A = num_heads, K = num_kv_heads (times
/// D = head_dim), c the mean number of keys that a query sees, forward and per step:
///   projections  4 H A D for q and o, and 4 H K D for k and v where the step stores them
///   attention    4 A D c, scores and mix
///   router       2 H E
///   experts      6 H (F top_k + F_s), routed and shared
/// Norms, activations, softmax and the optimizer are not counted: they are not products.
struct FlopParts {
  double projections = 0, attention = 0, router = 0, experts = 0;
  double total() const { return projections + attention + router + experts; }
};

/// Parameters by part; every expert and every looped layer once.
struct ParameterParts {
  int64_t attention = 0, router = 0, experts = 0, shared_experts = 0, norms = 0;
  int64_t embedding = 0, head = 0;  // head is 0 where it shares the embedding's weights
  int64_t non_embedding() const { return attention + router + experts + shared_experts + norms; }
};

struct Budget {
  FlopParts flops;
  ParameterParts params;
  double flops_per_token = 0;  // F: flops.total(), without embedding and head
  double flops_head = 0;       // 3 * 2 H V; looking up an embedding costs no product
  int64_t params_total = 0;
  int64_t params_non_embedding = 0;  // N
  int64_t params_active = 0;         // of N, what one traversal of the stack uses: top_k experts
  int64_t kv_values_per_token = 0;   // 2 K D per cache slot
  int64_t executed_depth = 0;
  double mean_context = 0;
};

/// @param mean_context mean number of keys that a query sees, itself included; (seq_len + 1) / 2
/// for full causal sequences
Budget budget_of(const ModelConfig& config, double mean_context);
/// The same for a plan at hand, which must be that of the configuration.
Budget budget_of(const ModelConfig& config, const ExecutionPlan& plan, double mean_context);

/// The fully active control of a configuration's scale: the same widths, every layer once, and no
/// more experts than each token uses. Its sparsity is 0 by definition.
ModelConfig control_of(const ModelConfig& config);

/// Compute-equivalent sparsity S = 1 - N_eq / N with N_eq = (F / F0) N0, the parameters of a model
/// like the control that costs as many FLOPs (arXiv 2609.01343). Both at the same mean context.
double sparsity(const Budget& budget, const Budget& control);

}  // namespace smelt
