// Private to tensor/: elementwise operations and full reductions.
#pragma once

#include "tensor/kernels/kernels.h"

SMELT_KERNEL(add_scaled, const Tensor& x, const Tensor& y, double alpha, const Tensor& out)
SMELT_KERNEL(add_scaled_in_place, const Tensor& x, const Tensor& y, double alpha)  // dtypes may mix
SMELT_KERNEL(mul, const Tensor& x, const Tensor& y, const Tensor& out)
SMELT_KERNEL(scale, const Tensor& x, double alpha, const Tensor& out)
SMELT_KERNEL(clamp, const Tensor& x, double limit, const Tensor& out)
SMELT_KERNEL(clamp_backward, const Tensor& dy, const Tensor& x, double limit, const Tensor& dx)
SMELT_KERNEL(sum, const Tensor& x, const Tensor& out)          // out [1] f64
SMELT_KERNEL(sum_squares, const Tensor& x, const Tensor& out)  // out [1] f64
