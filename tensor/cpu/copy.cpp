// Strided copy with conversion, and fill. Rows along the last dimension are the unit of work.
#include "tensor/kernels/copy.h"

#include <cstring>

namespace smelt::kernels::cpu {
namespace {

/// Offset of row `row` (all dimensions but the last, row-major) in elements.
int64_t row_offset(const Tensor& t, int64_t row) {
  int64_t offset = 0;
  for (int64_t d = t.rank() - 2; d >= 0; --d) {
    offset += (row % t.dim(d)) * t.strides()[size_t(d)];
    row /= t.dim(d);
  }
  return offset;
}

/// Two dimensions that share a contiguous tensor's elements out well: one long row would leave the
/// other threads idle, many short rows cost index arithmetic.
Shape row_shape(const Tensor& t) {
  const int64_t width = t.numel() % 4096 == 0 ? 4096 : t.rank() == 0 ? 1 : t.dim(-1);
  return {t.numel() / width, width};
}

struct Rows {
  explicit Rows(const Tensor& t)
      : columns(t.rank() == 0 ? 1 : t.dim(-1)),
        rows(t.numel() / columns),
        stride(t.rank() == 0 ? 1 : t.strides().back()) {}
  int64_t columns, rows, stride;
};

template <typename T, typename S>
T converted(S value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return bf16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename S, typename T>
void copy_rows(const Tensor& source, const Tensor& target) {
  const Rows from(source), to(target);
  const S* s = source.data<S>();
  T* t = target.data<T>();
#pragma omp parallel for schedule(static) if (source.numel() > kParallelGrain)
  for (int64_t r = 0; r < from.rows; ++r) {
    const S* sr = s + row_offset(source, r);
    T* tr = t + row_offset(target, r);
    if constexpr (std::is_same_v<S, T>) {
      if (from.stride == 1 && to.stride == 1) {
        std::memcpy(tr, sr, size_t(from.columns) * sizeof(T));
        continue;
      }
    }
    if (from.stride == 1 && to.stride == 1) {
#pragma omp simd
      for (int64_t c = 0; c < from.columns; ++c) tr[c] = converted<T>(sr[c]);
      continue;
    }
    for (int64_t c = 0; c < from.columns; ++c) {
      tr[c * to.stride] = converted<T>(sr[c * from.stride]);
    }
  }
}

}  // namespace

void strided_copy(const Tensor& source, const Tensor& target) {
  if (source.is_contiguous() && target.is_contiguous()) {
    const Shape flat = row_shape(source);
    if (source.shape() != flat) return strided_copy(source.view(flat), target.view(flat));
  }
  dispatch_any(source.dtype(), [&](auto s) {
    dispatch_any(target.dtype(),
                 [&](auto t) { copy_rows<decltype(s), decltype(t)>(source, target); });
  });
}

void strided_fill(const Tensor& target, double value) {
  if (target.is_contiguous()) {
    const Shape flat = row_shape(target);
    if (target.shape() != flat) return strided_fill(target.view(flat), value);
  }
  dispatch_any(target.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const Rows rows(target);
    T* t = target.data<T>();
    const T v = converted<T>(value);
#pragma omp parallel for schedule(static) if (target.numel() > kParallelGrain)
    for (int64_t r = 0; r < rows.rows; ++r) {
      T* tr = t + row_offset(target, r);
      for (int64_t c = 0; c < rows.columns; ++c) tr[c * rows.stride] = v;
    }
  });
}

}  // namespace smelt::kernels::cpu
