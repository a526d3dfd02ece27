// Matrix products. f32 and bf16 run on oneDNN, bf16 with sums in f32 (its operands are converted to
// f32 where the processor has no bf16 product); f64 exists for gradient checks and runs on plain
// blocked loops.
// Empty dimensions are legal everywhere: an inner dimension of 0 gives zeros.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace smelt {

/// a [M, K] times b [K, N] -> [M, N], accumulated in f32 (f64 for f64). Either operand may be a
/// transposed view; other strides are copied first.
Tensor matmul(const Tensor& a, const Tensor& b);

/// c = alpha * a b + beta * c in place; c [M, N] has unit column stride. c may be f32 while a and b
/// are bf16. beta = 0 overwrites c without reading it.
void matmul_(const Tensor& c, const Tensor& a, const Tensor& b, double alpha, double beta);

/// Grouped GEMM: rows [offsets[g], offsets[g+1]) of the result are the same rows of x [R, K] times
/// w[g], w [G, K, N], each w[g] plain or transposed view. Empty groups are allowed. -> [R, N]
/// @param offsets [G + 1] on the host, first 0, non-decreasing, last R; else ShapeError.
/// Cost: 2 R K N FLOPs.
Tensor grouped_matmul(const Tensor& x, const Tensor& w, const std::vector<int64_t>& offsets);

/// c[g] += a[rows of g]^T b[rows of g] for a [R, M], b [R, N], c [G, M, N] (f32, or f64 for f64):
/// the weight gradient of a grouped product. Groups without rows are left as they are.
void grouped_outer_(const Tensor& c, const Tensor& a, const Tensor& b,
                    const std::vector<int64_t>& offsets);

/// Whether this processor has a native bf16 product (AVX512-BF16 or AMX).
bool has_native_bf16();

}  // namespace smelt
