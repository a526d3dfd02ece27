#include "tensor/kernels/norm.h"

#include <algorithm>

#include "tensor/cpu/simd.h"

namespace smelt::kernels::cpu {
namespace {

template <typename T>
void forward(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
             const Tensor& rstd) {
  using A = acc_t<T>;
  const int64_t rows = rstd.numel(), width = weight.numel();
  const T* xs = x.data<T>();
  const T* w = weight.data<T>();
  T* ys = y.data<T>();
  A* rs = rstd.data<A>();
  const A mean = width > 0 ? A(1) / A(width) : A(0);
#pragma omp parallel for schedule(static) if (x.numel() > kParallelGrain)
  for (int64_t r = 0; r < rows; ++r) {
    const T* xr = xs + r * width;
    T* yr = ys + r * width;
    A squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < width; ++c) squares += A(xr[c]) * A(xr[c]);
    const A scale = A(1) / std::sqrt(squares * mean + A(eps));
    rs[r] = scale;
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
      yr[c] = round_to<T>(A(w[c]) * A(round_to<T>(A(xr[c]) * scale)));
    }
  }
}

/// Rows per block of the weight gradient: depends on the row count alone, so that its sums do not
/// depend on threads; at most 128 blocks.
int64_t rows_per_block(int64_t rows) { return std::max<int64_t>(64, (rows + 127) / 128); }

template <typename T>
void backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
              const Tensor& dx, const Tensor& dweight) {
  using A = acc_t<T>;
  const int64_t rows = rstd.numel(), width = weight.numel();
  const int64_t block_rows = rows_per_block(rows), blocks = (rows + block_rows - 1) / block_rows;
  const Tensor partial = Tensor::empty({blocks, width}, rstd.options());
  const T* dys = dy.data<T>();
  const T* xs = x.data<T>();
  const T* w = weight.data<T>();
  const A* rs = rstd.data<A>();
  T* dxs = dx.data<T>();
  A* parts = partial.data<A>();
  A* dw = dweight.data<A>();
  const A mean = width > 0 ? A(1) / A(width) : A(0);
#pragma omp parallel if (x.numel() > kParallelGrain)
  {
#pragma omp for schedule(static)
    for (int64_t b = 0; b < blocks; ++b) {
      A* part = parts + b * width;
      std::fill_n(part, width, A(0));
      const int64_t end = std::min(rows, (b + 1) * block_rows);
      for (int64_t r = b * block_rows; r < end; ++r) {
        const T* dyr = dys + r * width;
        const T* xr = xs + r * width;
        T* dxr = dxs + r * width;
        const A scale = rs[r];
        A dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t c = 0; c < width; ++c) dot += A(dyr[c]) * A(w[c]) * (A(xr[c]) * scale);
        dot *= mean;
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) {
          const A n = A(xr[c]) * scale, d = A(dyr[c]);
          part[c] += d * n;
          dxr[c] = round_to<T>(scale * (d * A(w[c]) - n * dot));
        }
      }
    }
#pragma omp for schedule(static)
    for (int64_t begin = 0; begin < width; begin += 64) {
      const int64_t end = std::min(width, begin + 64);
      std::fill(dw + begin, dw + end, A(0));
      for (int64_t b = 0; b < blocks; ++b) {
        const A* part = parts + b * width;
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) dw[c] += part[c];
      }
    }
  }
}

}  // namespace

void rms_norm(const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
              const Tensor& rstd) {
  dispatch_float(x.dtype(), "rms_norm",
                 [&](auto tag) { forward<decltype(tag)>(x, weight, eps, y, rstd); });
}

void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                       const Tensor& dx, const Tensor& dweight) {
  dispatch_float(x.dtype(), "rms_norm_backward",
                 [&](auto tag) { backward<decltype(tag)>(dy, x, weight, rstd, dx, dweight); });
}

}  // namespace smelt::kernels::cpu
