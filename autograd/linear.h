// Differentiable matrix products. Weight gradients accumulate straight into the leaf's f32 buffer.
#pragma once

#include <vector>

#include "autograd/variable.h"

namespace smelt {

/// y = x w^T. x [T, in], weight [out, in] -> [T, out] in the dtype of x.
/// dx = dy w, dw = dy^T x. Cost: 2 T in out FLOPs forward, twice that backward.
Variable linear(const Variable& x, const Variable& weight);

/// linear() whose result is kept in f32 whatever the dtype of x: for router logits, whose rounding
/// to bf16 would change the selection.
Variable linear_f32(const Variable& x, const Variable& weight);

/// Grouped GEMM: rows of group g times weight[g]^T. x [R, in] sorted by group, weight [G, out, in],
/// offsets [G + 1] on the host -> [R, out]. Groups may be empty.
Variable grouped_linear(const Variable& x, const Variable& weight,
                        const std::vector<int64_t>& offsets);

}  // namespace smelt
