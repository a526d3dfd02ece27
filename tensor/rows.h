// Moving rows: gathering, weighted combination, and deterministic scatter-add. These carry token
// permutation, un-permutation and embedding look-up. All copies are exact; sums run in a fixed
// order.
#pragma once

#include "tensor/tensor.h"

namespace smelt {

/// out[i] = x[index[i]] (times weights[i] if given). x [T, H] any dtype, index [N] i32 in [0, T),
/// weights [N] f32 (f64 for f64) or undefined -> [N, H]. Throws ShapeError naming a bad index.
Tensor gather_rows(const Tensor& x, const Tensor& index, const Tensor& weights = {});

/// out[t] = sum over k of weights[t, k] * rows[row_of_slot[t, k]], k ascending, accumulated in f32.
/// rows [N, H], row_of_slot [T, K] i32 in [0, N), weights [T, K] f32 (f64) or undefined for ones.
Tensor combine_rows(const Tensor& rows, const Tensor& row_of_slot, const Tensor& weights = {});

/// [T, K] f32 (f64): out[t, k] = dot(dy[t], rows[row_of_slot[t, k]]), the gradient of combine
/// weights.
Tensor combine_weights_grad(const Tensor& dy, const Tensor& rows, const Tensor& row_of_slot);

/// target[index[i]] += alpha * rows[i] in ascending i for each target row. target [V, H] f32 (f64),
/// rows [N, H] any floating dtype, index [N] i32 in [0, V).
void scatter_add_rows_(const Tensor& target, const Tensor& index, const Tensor& rows,
                       double alpha = 1.0);

}  // namespace smelt
