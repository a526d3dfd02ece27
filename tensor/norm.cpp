#include "tensor/norm.h"

#include "tensor/kernels/checks.h"
#include "tensor/kernels/norm.h"

namespace smelt {
namespace {

void check_arguments(const char* op, const Tensor& x, const Tensor& weight) {
  check_floating(op, "x", x);
  SMELT_CHECK(ShapeError, x.rank() >= 1, op << ": x must have at least 1 dimension");
  check_defined(op, "weight", weight);
  SMELT_CHECK(ShapeError, weight.rank() == 1 && weight.dim(0) == x.dim(-1),
              op << ": weight must be [" << x.dim(-1) << "] for x " << to_string(x.shape())
                 << ", shape is " << to_string(weight.shape()));
  check_same_options(op, x, weight);
}

int64_t rows_of(const Tensor& x) {
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < x.rank(); ++d) rows *= x.dim(d);
  return rows;
}

}  // namespace

RmsNorm rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  check_arguments("rms_norm", x, weight);
  const TensorOptions statistics = {accumulation_dtype(x.dtype()), x.device()};
  const RmsNorm result = {Tensor::empty(x.shape(), x.options()),
                          Tensor::empty({rows_of(x)}, statistics)};
  SMELT_DISPATCH(x.device(), rms_norm, x.contiguous(), weight.contiguous(), eps, result.y,
                 result.rstd);
  return result;
}

RmsNormGrad rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                              const Tensor& rstd) {
  check_arguments("rms_norm_backward", x, weight);
  check_defined("rms_norm_backward", "dy", dy);
  check_same_shape("rms_norm_backward", dy, x);
  check_same_options("rms_norm_backward", dy, x);
  check_shape("rms_norm_backward", "rstd", rstd, {rows_of(x)});
  check_dtype("rms_norm_backward", "rstd", rstd, accumulation_dtype(x.dtype()));
  check_same_device("rms_norm_backward", rstd, x);
  const RmsNormGrad result = {Tensor::empty(x.shape(), x.options()),
                              Tensor::empty(weight.shape(), rstd.options())};
  SMELT_DISPATCH(x.device(), rms_norm_backward, dy.contiguous(), x.contiguous(),
                 weight.contiguous(), rstd.contiguous(), result.dx, result.dweight);
  return result;
}

}  // namespace smelt
