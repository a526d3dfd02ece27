// RMSNorm (Zhang & Sennrich, 2019): y = w * x / sqrt(mean(x^2) + eps) over the last dimension.
#pragma once

#include "tensor/tensor.h"

namespace smelt {

struct RmsNorm {
  Tensor y;     // shape and dtype of x
  Tensor rstd;  // [rows] f32 (f64 for f64): 1 / sqrt(mean(x^2) + eps)
};

/// x [..., H] f32|bf16|f64, weight [H] same dtype. Statistics in f32; x * rstd is rounded to the
/// dtype of x before the product with the weight, as Qwen3 does.
RmsNorm rms_norm(const Tensor& x, const Tensor& weight, double eps);

struct RmsNormGrad {
  Tensor dx;       // like x
  Tensor dweight;  // [H] f32 (f64 for f64)
};
/// With n = x * rstd and g = dy * w: dx = rstd * (g - n * mean(g n)), dw = sum over rows of dy * n.
RmsNormGrad rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                              const Tensor& rstd);

struct AddRmsNorm {
  Tensor sum;    // like x
  RmsNorm norm;  // of sum
};
/// The residual addition and the norm that reads it, in one pass: sum = x + alpha * branch, rounded
/// to its dtype, and rms_norm(sum). branch is like x.
AddRmsNorm add_rms_norm(const Tensor& x, const Tensor& branch, double alpha, const Tensor& weight,
                        double eps);

struct AddRmsNormGrad {
  Tensor dx;       // like x
  Tensor dbranch;  // alpha * dx; dx itself where alpha is 1
  Tensor dweight;  // as in RmsNormGrad
};
/// dx = dsum + (dx of rms_norm_backward), from the gradients of both results.
AddRmsNormGrad add_rms_norm_backward(const Tensor& dsum, const Tensor& dy, const Tensor& sum,
                                     double alpha, const Tensor& weight, const Tensor& rstd);

}  // namespace smelt
