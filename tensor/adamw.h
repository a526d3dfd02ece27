// AdamW (Loshchilov & Hutter, 2019) on flat buffers, one pass.
#pragma once

#include "tensor/tensor.h"

namespace smelt {

struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0;  // decoupled: param *= 1 - lr * weight_decay
  double grad_scale = 1;    // clipping factor, applied to the gradient first
  int64_t step = 1;         // 1-based, for bias correction
};

/// param -= lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps), after decay, with m
/// and v updated in place. All four tensors contiguous, of equal size, f32 (or all f64).
void adamw_(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v,
            const AdamWStep& step);

}  // namespace smelt
