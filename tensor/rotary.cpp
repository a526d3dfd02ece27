#include "tensor/rotary.h"

#include <cmath>

#include "tensor/kernels/checks.h"
#include "tensor/kernels/rotary.h"

namespace smelt {

RotaryTable rotary_table(int64_t positions, int64_t head_dim, double theta, DType dtype) {
  SMELT_CHECK(ShapeError, positions >= 0,
              "rotary_table: positions must not be negative, is " << positions);
  SMELT_CHECK(ShapeError, head_dim > 0 && head_dim % 2 == 0,
              "rotary_table: head_dim must be even and positive, is " << head_dim);
  SMELT_CHECK(ConfigError, theta > 0, "rotary_table: theta must be positive, is " << theta);
  SMELT_CHECK(DTypeError, is_floating(dtype),
              "rotary_table: dtype must be f32, bf16 or f64, is " << dtype);
  const int64_t half = head_dim / 2;
  const Tensor cosines = Tensor::empty({positions, half}, {DType::f64, {}});
  const Tensor sines = Tensor::empty({positions, half}, {DType::f64, {}});
  double* c = cosines.data<double>();
  double* s = sines.data<double>();
  // In double, column by column: one pow per frequency. Rounded once at the end.
  for (int64_t j = 0; j < half; ++j) {
    const double frequency = std::pow(theta, -2.0 * double(j) / double(head_dim));
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = double(p) * frequency;
      c[p * half + j] = std::cos(angle);
      s[p * half + j] = std::sin(angle);
    }
  }
  const DType stored = accumulation_dtype(dtype);
  return {cosines.to(stored), sines.to(stored)};
}

Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryTable& table, bool inverse) {
  check_rank("rotary", "x", x, 3);
  check_floating("rotary", "x", x);
  SMELT_CHECK(ShapeError, x.dim(2) > 0 && x.dim(2) % 2 == 0,
              "rotary: x must have an even, positive head size, shape is " << to_string(x.shape()));
  check_shape("rotary", "positions", positions, {x.dim(0)});
  check_rank("rotary", "table.cosines", table.cosines, 2);
  check_shape("rotary", "table.sines", table.sines, table.cosines.shape());
  SMELT_CHECK(ShapeError, table.cosines.dim(1) == x.dim(2) / 2,
              "rotary: table " << to_string(table.cosines.shape()) << " does not fit x "
                               << to_string(x.shape()));
  check_dtype("rotary", "table.cosines", table.cosines, accumulation_dtype(x.dtype()));
  check_same_options("rotary", table.cosines, table.sines);
  check_same_device("rotary", table.cosines, x);
  check_indices("rotary", "positions", positions, table.cosines.dim(0), x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  const Tensor heads = x.strides()[2] == 1 ? x : x.contiguous();
  SMELT_DISPATCH(x.device(), rotary, heads, positions.contiguous(), table.cosines.contiguous(),
                 table.sines.contiguous(), inverse, out);
  return out;
}

}  // namespace smelt
