// SwiGLU (Shazeer, 2020): y = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
#pragma once

#include "tensor/tensor.h"

namespace smelt {

/// gate_up [R, 2F], gate in columns [0, F), up in [F, 2F) -> [R, F]. Computed in f32.
Tensor swiglu(const Tensor& gate_up);
/// Gradient with respect to gate_up [R, 2F] for dy [R, F].
Tensor swiglu_backward(const Tensor& dy, const Tensor& gate_up);

}  // namespace smelt
