#include "tensor/elementwise.h"

#include "tensor/kernels/checks.h"
#include "tensor/kernels/elementwise.h"

namespace smelt {
namespace {

void check_pair(const char* op, const Tensor& x, const Tensor& y) {
  check_floating(op, "x", x);
  check_defined(op, "y", y);
  check_same_shape(op, x, y);
  check_same_options(op, x, y);
}

}  // namespace

Tensor add_scaled(const Tensor& x, const Tensor& y, double alpha) {
  check_pair("add_scaled", x, y);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  SMELT_DISPATCH(x.device(), add_scaled, x.contiguous(), y.contiguous(), alpha, out);
  return out;
}

void add_scaled_(const Tensor& x, const Tensor& y, double alpha) {
  check_floating("add_scaled_", "x", x);
  check_floating("add_scaled_", "y", y);
  check_same_shape("add_scaled_", x, y);
  check_same_device("add_scaled_", x, y);
  SMELT_CHECK(ShapeError, x.is_contiguous(),
              "add_scaled_: x of shape " << to_string(x.shape()) << " must be contiguous");
  SMELT_DISPATCH(x.device(), add_scaled_in_place, x, y.contiguous(), alpha);
}

Tensor mul(const Tensor& x, const Tensor& y) {
  check_pair("mul", x, y);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  SMELT_DISPATCH(x.device(), mul, x.contiguous(), y.contiguous(), out);
  return out;
}

Tensor scale(const Tensor& x, double alpha) {
  check_floating("scale", "x", x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  SMELT_DISPATCH(x.device(), scale, x.contiguous(), alpha, out);
  return out;
}

Tensor clamp(const Tensor& x, double limit) {
  check_floating("clamp", "x", x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  SMELT_DISPATCH(x.device(), clamp, x.contiguous(), limit, out);
  return out;
}

Tensor clamp_backward(const Tensor& dy, const Tensor& x, double limit) {
  check_pair("clamp_backward", dy, x);
  const Tensor dx = Tensor::empty(x.shape(), x.options());
  SMELT_DISPATCH(x.device(), clamp_backward, dy.contiguous(), x.contiguous(), limit, dx);
  return dx;
}

Tensor sum(const Tensor& x) {
  check_floating("sum", "x", x);
  const Tensor out = Tensor::empty({1}, {DType::f64, x.device()});
  SMELT_DISPATCH(x.device(), sum, x.contiguous(), out);
  return out;
}

Tensor sum_squares(const Tensor& x) {
  check_floating("sum_squares", "x", x);
  const Tensor out = Tensor::empty({1}, {DType::f64, x.device()});
  SMELT_DISPATCH(x.device(), sum_squares, x.contiguous(), out);
  return out;
}

}  // namespace smelt
