// Differentiable router arithmetic and row movement; see tensor/routing.h and tensor/rows.h.
#pragma once

#include "autograd/variable.h"
#include "tensor/routing.h"

namespace smelt {

/// Row-wise softmax of x [T, E].
Variable softmax(const Variable& x);
/// Probabilities of the chosen experts [T, K], optionally divided by their sum.
Variable topk_weights(const Variable& probs, const Tensor& indices, bool normalize);

/// factor * sum_s sum_{t in s} sum_i load[s, i] probs[t, i], [1] f64; load [segments, E] f64 has no
/// gradient.
Variable segment_dot(const Variable& probs, const Tensor& load, double factor);
/// factor * sum over tokens of logsumexp(logits)^2, [1] f64 (router z-loss, arXiv 2202.08906).
Variable router_z_loss(const Variable& logits, double factor);

/// Weights by row [N], N = T * K, of weights [T, K] by slot.
Tensor weights_by_row(const Tensor& weights, const Tensor& row_of_slot);

/// Routed rows in expert order: out[r] = x[token_of_row[r]]. The gradient of a token is the sum
/// over its K rows, found through row_of_slot [T, K].
Variable permute_rows(const Variable& x, const Tensor& token_of_row, const Tensor& row_of_slot);

/// y[t] = sum_k weights[t, k] rows[row_of_slot[t, k]]. rows [N, H], weights [T, K] -> [T, H].
Variable combine_rows(const Variable& rows, const Variable& weights, const Tensor& token_of_row,
                      const Tensor& row_of_slot);

}  // namespace smelt
