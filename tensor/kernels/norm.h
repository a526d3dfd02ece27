// Private to tensor/: RMSNorm. x, y, dy, dx [..., H]; weight [H]; rstd [rows]; dweight [H].
#pragma once

#include "tensor/kernels/kernels.h"

SMELT_KERNEL(rms_norm, const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
             const Tensor& rstd)
SMELT_KERNEL(rms_norm_backward, const Tensor& dy, const Tensor& x, const Tensor& weight,
             const Tensor& rstd, const Tensor& dx, const Tensor& dweight)  // both overwritten
