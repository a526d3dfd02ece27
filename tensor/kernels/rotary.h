// Private to tensor/: rotary positions. x [T, heads, D] has unit stride in its last dimension and
// any strides in the others, so that heads can be cut out of a fused projection without a copy.
#pragma once

#include "tensor/kernels/kernels.h"

SMELT_KERNEL(rotary, const Tensor& x, const Tensor& positions, const Tensor& cosines,
             const Tensor& sines, bool inverse, const Tensor& out)
