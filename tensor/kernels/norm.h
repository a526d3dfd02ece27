// Private to tensor/: RMSNorm, alone or of x + alpha * branch. x, y, dy, dx and their like [...,
// H]; weight [H]; rstd [rows]; dweight [H]. dbranch is dx itself where alpha is 1.
#pragma once

#include "tensor/kernels/kernels.h"

SMELT_KERNEL(rms_norm, const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
             const Tensor& rstd)
SMELT_KERNEL(rms_norm_backward, const Tensor& dy, const Tensor& x, const Tensor& weight,
             const Tensor& rstd, const Tensor& dx, const Tensor& dweight)  // both overwritten
SMELT_KERNEL(add_rms_norm, const Tensor& x, const Tensor& branch, double alpha,
             const Tensor& weight, double eps, const Tensor& sum, const Tensor& y,
             const Tensor& rstd)
SMELT_KERNEL(add_rms_norm_backward, const Tensor& dsum, const Tensor& dy, const Tensor& sum,
             double alpha, const Tensor& weight, const Tensor& rstd, const Tensor& dx,
             const Tensor& dbranch, const Tensor& dweight)
