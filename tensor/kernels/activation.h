// Private to tensor/: SwiGLU. gate_up, dgate_up [R, 2F]; out, dy [R, F].
#pragma once

#include "tensor/kernels/kernels.h"

SMELT_KERNEL(swiglu, const Tensor& gate_up, const Tensor& out)
SMELT_KERNEL(swiglu_backward, const Tensor& dy, const Tensor& gate_up, const Tensor& dgate_up)
