// The experts of one layer where no row leaves the rank, as two functions that keep little: routed
// rows [N, H] are the largest activation of a MoE layer, N = T * top_k, and neither those that the
// experts read nor those that they return are kept for backward. With experts on several ranks the
// rows that arrived must be kept; token_dispatch.h then composes the same from single functions.
#pragma once

#include <vector>

#include "autograd/variable.h"

namespace smelt {

/// Which row of the experts belongs to which token.
struct Routes {
  Tensor token_of_row;           // [N] i32, rows sorted by expert
  Tensor row_of_slot;            // [T, K] i32, N = T * K
  std::vector<int64_t> offsets;  // [G + 1] on the host: rows of each expert
};

/// y[r] = x[token_of_row[r]] weight[expert of r]^T. x [T, in], weight [G, out, in] -> [N, out].
/// Backward gathers the rows of x again.
Variable routed_linear(const Variable& x, const Variable& weight, const Routes& routes);

/// y[t] = sum_k weights[t, k] swiglu(gate_up[r]) weight[expert of r]^T with r = row_of_slot[t, k].
/// gate_up [N, 2F], weight [G, out, F], weights [T, K] f32 (f64) -> [T, out].
/// With h = swiglu(gate_up), computed again, g[r] = dy[token_of_row[r]] and u = g weight:
/// dweights[t, k] = <u[r], h[r]>, dh = weights u, dweight = g^T (weights h).
Variable routed_swiglu_linear(const Variable& gate_up, const Variable& weight,
                              const Variable& weights, const Routes& routes);

}  // namespace smelt
