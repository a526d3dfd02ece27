// The router: one logit per expert and token, top-k of the softmax. Logits and probabilities are
// f32 (f64 in f64 models) whatever the compute dtype.
#pragma once

#include <string>

#include "nn/parameter.h"

namespace smelt {

struct Routing {
  Variable logits;   // [T, E]
  Variable probs;    // [T, E] softmax over all experts
  Variable weights;  // [T, K] mixing weights of the chosen experts
  Tensor indices;    // [T, K] i32, best first; ties to the lowest index
};

class Router {
 public:
  /// Weight [num_experts, hidden_size] named `prefix`.weight. normalize divides the K weights by
  /// their sum.
  Router(ParameterStore& store, const std::string& prefix, int64_t hidden_size, int64_t num_experts,
         int64_t top_k, bool normalize, double init_std);

  /// x [T, H]. bias [E] f32, if defined, is added to the probabilities for the selection only
  /// (arXiv 2408.15664).
  Routing operator()(const Variable& x, const Tensor& bias = {}) const;

 private:
  Parameter* weight_;
  int64_t top_k_;
  bool normalize_;
};

}  // namespace smelt
