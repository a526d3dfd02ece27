#include "tensor/kernels/checks.h"

namespace smelt {

void check_floating(const char* op, const char* name, const Tensor& x) {
  check_defined(op, name, x);
  SMELT_CHECK(DTypeError, is_floating(x.dtype()),
              op << ": " << name << " must be f32, bf16 or f64, is " << x.dtype());
}

void check_full_precision(const char* op, const char* name, const Tensor& x) {
  check_defined(op, name, x);
  SMELT_CHECK(DTypeError, x.dtype() == DType::f32 || x.dtype() == DType::f64,
              op << ": " << name << " must be f32 or f64, is " << x.dtype());
}

void check_same_device(const char* op, const Tensor& x, const Tensor& y) {
  SMELT_CHECK(DeviceError, x.device() == y.device(),
              op << ": devices differ: " << x.device() << " and " << y.device());
}

void check_indices(const char* op, const char* name, const Tensor& index, int64_t limit,
                   const Tensor& like) {
  check_dtype(op, name, index, DType::i32);
  check_same_device(op, index, like);
  if (index.numel() == 0) return;
  const Tensor dense = index.contiguous();
  int64_t position = -1;
  SMELT_DISPATCH(dense.device(), find_out_of_range, dense, limit, &position);
  if (position < 0) return;
  const auto value = int64_t(dense.view({-1}).slice(0, position, position + 1).item());
  SMELT_CHECK(ShapeError, false,
              op << ": " << name << "[" << position << "] is " << value << ", must be in [0, "
                 << limit << "); " << name << " has shape " << to_string(index.shape()));
}

}  // namespace smelt
