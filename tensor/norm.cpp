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

void check_like(const char* op, const char* name, const Tensor& y, const Tensor& x) {
  check_defined(op, name, y);
  check_same_shape(op, y, x);
  check_same_options(op, y, x);
}

void check_gradient(const char* op, const Tensor& dy, const Tensor& x, const Tensor& weight,
                    const Tensor& rstd) {
  check_arguments(op, x, weight);
  check_like(op, "dy", dy, x);
  check_shape(op, "rstd", rstd, {rows_of(x)});
  check_dtype(op, "rstd", rstd, accumulation_dtype(x.dtype()));
  check_same_device(op, rstd, x);
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
  check_gradient("rms_norm_backward", dy, x, weight, rstd);
  const RmsNormGrad result = {Tensor::empty(x.shape(), x.options()),
                              Tensor::empty(weight.shape(), rstd.options())};
  SMELT_DISPATCH(x.device(), rms_norm_backward, dy.contiguous(), x.contiguous(),
                 weight.contiguous(), rstd.contiguous(), result.dx, result.dweight);
  return result;
}

AddRmsNorm add_rms_norm(const Tensor& x, const Tensor& branch, double alpha, const Tensor& weight,
                        double eps) {
  check_arguments("add_rms_norm", x, weight);
  check_like("add_rms_norm", "branch", branch, x);
  const TensorOptions statistics = {accumulation_dtype(x.dtype()), x.device()};
  const AddRmsNorm result = {
      Tensor::empty(x.shape(), x.options()),
      {Tensor::empty(x.shape(), x.options()), Tensor::empty({rows_of(x)}, statistics)}};
  SMELT_DISPATCH(x.device(), add_rms_norm, x.contiguous(), branch.contiguous(), alpha,
                 weight.contiguous(), eps, result.sum, result.norm.y, result.norm.rstd);
  return result;
}

AddRmsNormGrad add_rms_norm_backward(const Tensor& dsum, const Tensor& dy, const Tensor& sum,
                                     double alpha, const Tensor& weight, const Tensor& rstd) {
  check_gradient("add_rms_norm_backward", dy, sum, weight, rstd);
  check_like("add_rms_norm_backward", "dsum", dsum, sum);
  AddRmsNormGrad result = {
      Tensor::empty(sum.shape(), sum.options()), {}, Tensor::empty(weight.shape(), rstd.options())};
  result.dbranch = alpha == 1 ? result.dx : Tensor::empty(sum.shape(), sum.options());
  SMELT_DISPATCH(sum.device(), add_rms_norm_backward, dsum.contiguous(), dy.contiguous(),
                 sum.contiguous(), alpha, weight.contiguous(), rstd.contiguous(), result.dx,
                 result.dbranch, result.dweight);
  return result;
}

}  // namespace smelt
