// Private to tensor/: matrix products. All operands have the dtype of c, f32 or f64.
#pragma once

#include "tensor/kernels/kernels.h"

// a and b have one unit stride each; c has unit column stride.
SMELT_KERNEL(matmul, const Tensor& c, const Tensor& a, const Tensor& b, double alpha, double beta)
// w[g] has one unit stride; x and y are contiguous.
SMELT_KERNEL(grouped_matmul, const Tensor& y, const Tensor& x, const Tensor& w,
             const std::vector<int64_t>& offsets)
SMELT_KERNEL(grouped_outer, const Tensor& c, const Tensor& a, const Tensor& b,
             const std::vector<int64_t>& offsets)
