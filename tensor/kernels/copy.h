// Private to tensor/: strided copy and fill.
#pragma once

#include "tensor/kernels/kernels.h"

SMELT_KERNEL(strided_copy, const Tensor& source, const Tensor& target)  // any strides, any dtypes
SMELT_KERNEL(strided_fill, const Tensor& target, double value)          // any strides
