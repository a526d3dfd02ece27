// Private to tensor/: router arithmetic. Tensors [T, E] or [T, K] unless named otherwise; scores
// and probabilities are f32 or f64.
#pragma once

#include "tensor/kernels/kernels.h"

SMELT_KERNEL(softmax, const Tensor& x, const Tensor& out)
SMELT_KERNEL(softmax_backward, const Tensor& dy, const Tensor& probs, const Tensor& dx)
SMELT_KERNEL(topk, const Tensor& scores, const Tensor& bias, const Tensor& out)  // K from out
SMELT_KERNEL(topk_weights, const Tensor& probs, const Tensor& indices, bool normalize,
             const Tensor& out)
SMELT_KERNEL(topk_weights_backward, const Tensor& dweights, const Tensor& probs,
             const Tensor& indices, bool normalize, const Tensor& dprobs)
SMELT_KERNEL(expert_counts, const Tensor& indices, const Tensor& out)  // out [segments, E] f64
SMELT_KERNEL(segment_dot, const Tensor& probs, const Tensor& load, const Tensor& out)
SMELT_KERNEL(expand_segments, const Tensor& load, double factor, const Tensor& out)
SMELT_KERNEL(router_z_loss, const Tensor& logits, const Tensor& sum, const Tensor& gradient)
/// tokens_per_expert [num_experts] on the host.
SMELT_KERNEL(sort_slots, const Tensor& indices, int64_t num_experts, const Tensor& row_of_slot,
             const Tensor& token_of_row, int64_t* tokens_per_expert)
