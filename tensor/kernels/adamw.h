// Private to tensor/: AdamW on contiguous buffers of equal size.
#pragma once

#include "tensor/adamw.h"
#include "tensor/kernels/kernels.h"

SMELT_KERNEL(adamw, const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v,
             const AdamWStep& step)
