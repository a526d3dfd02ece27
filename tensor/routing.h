// Router arithmetic: softmax, top-k, balance statistics and the order of routed rows. Letters: T
// tokens, E experts, K top_k; a slot is one (token, k) pair, numbered token * K + k.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace smelt {

/// Row-wise softmax of x [T, E] f32|f64, same dtype.
Tensor softmax(const Tensor& x);
/// dx = p * (dy - sum(dy * p)) for p = softmax(x).
Tensor softmax_backward(const Tensor& dy, const Tensor& probs);

/// Indices of the k largest entries of scores [T, E] f32|f64 (plus bias [E] if given, for the
/// selection only), largest first -> [T, K] i32. Ties go to the lowest index. 1 <= k <= E.
/// NaN scores rank below everything, so every row yields k distinct experts.
Tensor topk(const Tensor& scores, int64_t k, const Tensor& bias = {});

/// weights[t, k] = probs[t, indices[t, k]], divided by the row's sum if `normalize` -> [T, K].
Tensor topk_weights(const Tensor& probs, const Tensor& indices, bool normalize);
/// Gradient of topk_weights with respect to probs [T, E].
Tensor topk_weights_backward(const Tensor& dweights, const Tensor& probs, const Tensor& indices,
                             bool normalize);

/// How often each expert was chosen within each of `segments` equal runs of tokens: [segments, E]
/// f64. T must be divisible by segments.
Tensor expert_counts(const Tensor& indices, int64_t num_experts, int64_t segments);

/// sum over segments s, tokens t of s and experts i of load[s, i] * probs[t, i], as [1] f64. load
/// [segments, E] f64. Its gradient is load[s, i] for every token of s: expand_segments().
Tensor segment_dot(const Tensor& probs, const Tensor& load);
/// [T, E] in `dtype`: row t is factor * load[segment of t].
Tensor expand_segments(const Tensor& load, int64_t tokens, double factor, DType dtype);

struct ZLoss {
  Tensor sum;       // [1] f64: sum over tokens of logsumexp(logits)^2
  Tensor gradient;  // [T, E] d sum / d logits = 2 lse softmax(logits)
};
ZLoss router_z_loss(const Tensor& logits);

/// Stable order of slots by expert.
struct SlotOrder {
  Tensor row_of_slot;                      // [T, K] i32: where a slot's row goes
  Tensor token_of_row;                     // [T * K] i32: which token a row comes from
  std::vector<int64_t> tokens_per_expert;  // [E] on the host
};
/// Rows sorted by expert, within an expert by slot. indices [T, K] i32 in [0, E).
SlotOrder sort_slots(const Tensor& indices, int64_t num_experts);

}  // namespace smelt
