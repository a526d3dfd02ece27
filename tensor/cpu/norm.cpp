#include "tensor/kernels/norm.h"

#include <algorithm>

#include "tensor/cpu/simd.h"

namespace smelt::kernels::cpu {
namespace {

/// Norm of the rows of x, or of x + alpha * branch, which is then stored in sum.
template <typename T, bool kAdd>
void forward(const Tensor& x, const Tensor& branch, double alpha, const Tensor& weight, double eps,
             const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  using A = acc_t<T>;
  const int64_t rows = rstd.numel(), width = weight.numel();
  const T* xs = x.data<T>();
  const T* branches = kAdd ? branch.data<T>() : nullptr;
  T* sums = kAdd ? sum.data<T>() : nullptr;
  const T* w = weight.data<T>();
  T* ys = y.data<T>();
  A* rs = rstd.data<A>();
  const A mean = width > 0 ? A(1) / A(width) : A(0), factor = A(alpha);
#pragma omp parallel for schedule(static) if (x.numel() > kParallelGrain)
  for (int64_t r = 0; r < rows; ++r) {
    const T* xr = xs + r * width;
    T* yr = ys + r * width;
    if constexpr (kAdd) {
      const T* br = branches + r * width;
      T* sr = sums + r * width;
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) sr[c] = round_to<T>(A(xr[c]) + factor * A(br[c]));
      xr = sr;
    }
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

/// dx of the norm of x, plus dsum where given (kAdd), and alpha times that in dbranch.
template <typename T, bool kAdd>
void backward(const Tensor& dsum, const Tensor& dy, const Tensor& x, double alpha,
              const Tensor& weight, const Tensor& rstd, const Tensor& dx, const Tensor& dbranch,
              const Tensor& dweight) {
  using A = acc_t<T>;
  const int64_t rows = rstd.numel(), width = weight.numel();
  const int64_t block_rows = rows_per_block(rows), blocks = (rows + block_rows - 1) / block_rows;
  const Tensor partial = Tensor::empty({blocks, width}, rstd.options());
  const T* dys = dy.data<T>();
  const T* xs = x.data<T>();
  const T* w = weight.data<T>();
  const A* rs = rstd.data<A>();
  T* dxs = dx.data<T>();
  const T* dsums = kAdd ? dsum.data<T>() : nullptr;
  T* dbranches = kAdd && alpha != 1 ? dbranch.data<T>() : nullptr;
  A* parts = partial.data<A>();
  A* dw = dweight.data<A>();
  const A mean = width > 0 ? A(1) / A(width) : A(0), factor = A(alpha);
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
          const A g = scale * (d * A(w[c]) - n * dot);
          if constexpr (kAdd) {
            dxr[c] = round_to<T>(A(dsums[r * width + c]) + g);
          } else {
            dxr[c] = round_to<T>(g);
          }
        }
        if (dbranches == nullptr) continue;
        T* const dbr = dbranches + r * width;
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) dbr[c] = round_to<T>(factor * A(dxr[c]));
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
  dispatch_float(x.dtype(), "rms_norm", [&](auto tag) {
    forward<decltype(tag), false>(x, {}, 0, weight, eps, {}, y, rstd);
  });
}

void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                       const Tensor& dx, const Tensor& dweight) {
  dispatch_float(x.dtype(), "rms_norm_backward", [&](auto tag) {
    backward<decltype(tag), false>({}, dy, x, 1, weight, rstd, dx, {}, dweight);
  });
}

void add_rms_norm(const Tensor& x, const Tensor& branch, double alpha, const Tensor& weight,
                  double eps, const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  dispatch_float(x.dtype(), "add_rms_norm", [&](auto tag) {
    forward<decltype(tag), true>(x, branch, alpha, weight, eps, sum, y, rstd);
  });
}

void add_rms_norm_backward(const Tensor& dsum, const Tensor& dy, const Tensor& sum, double alpha,
                           const Tensor& weight, const Tensor& rstd, const Tensor& dx,
                           const Tensor& dbranch, const Tensor& dweight) {
  dispatch_float(sum.dtype(), "add_rms_norm_backward", [&](auto tag) {
    backward<decltype(tag), true>(dsum, dy, sum, alpha, weight, rstd, dx, dbranch, dweight);
  });
}

}  // namespace smelt::kernels::cpu
