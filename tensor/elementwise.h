// Elementwise operations and full reductions on floating tensors. Inputs may have any strides;
// results are new contiguous tensors of the inputs' dtype. Nothing broadcasts: use expand().
#pragma once

#include "tensor/tensor.h"

namespace smelt {

/// x + alpha * y. Same shape, dtype and device, else ShapeError, DTypeError or DeviceError.
Tensor add_scaled(const Tensor& x, const Tensor& y, double alpha);
/// x += alpha * y in place; x contiguous. y may have another floating dtype (bf16 into f32).
void add_scaled_(const Tensor& x, const Tensor& y, double alpha);
/// x * y elementwise.
Tensor mul(const Tensor& x, const Tensor& y);
/// alpha * x.
Tensor scale(const Tensor& x, double alpha);
/// x with every element moved into [-limit, limit]; NaN stays.
Tensor clamp(const Tensor& x, double limit);
/// Its gradient: dy where |x| <= limit, else 0. Shapes, dtypes and devices must agree.
Tensor clamp_backward(const Tensor& dy, const Tensor& x, double limit);
/// Sum of all elements as a [1] f64 tensor. Summed in double over fixed blocks, so the result does
/// not depend on the number of threads.
Tensor sum(const Tensor& x);
/// Sum of squares of all elements as a [1] f64 tensor, summed as in sum().
Tensor sum_squares(const Tensor& x);

}  // namespace smelt
