// Row-major products: checks and the degenerate cases here, the rest in oneDNN or in plain loops.
#include "tensor/cpu/blas.h"

#include <algorithm>
#include <vector>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "tensor/error.h"

namespace smelt::kernels::cpu {
namespace {

void product(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float* a,
             int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const dnnl::status status =
      dnnl::sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
  SMELT_CHECK(Error, status == dnnl::status::success,
              "gemm: sgemm failed with status "
                  << int(status) << " for [" << M << ", " << K << "] x [" << K << ", " << N
                  << "], transposed " << ta << tb << ", strides " << lda << " " << ldb << " "
                  << ldc);
}

// Block sizes of the double product: a packed block of a (64 KiB) and of b (256 KiB) stay in the
// second-level cache.
constexpr int64_t kRows = 64, kInner = 128, kColumns = 256;

/// Rows [i0, i1) of the double product. Sums run over K in order, whatever the row split, so the
/// result does not depend on the thread count.
void product_rows(bool ta, bool tb, int64_t i0, int64_t i1, int64_t N, int64_t K, double alpha,
                  const double* a, int64_t lda, const double* b, int64_t ldb, double* c,
                  int64_t ldc) {
  thread_local std::vector<double> packed_a(size_t(kRows * kInner));
  thread_local std::vector<double> packed_b(size_t(kInner * kColumns));
  double* const pa = packed_a.data();
  double* const pb = packed_b.data();
  const int64_t rows = i1 - i0;
  for (int64_t k0 = 0; k0 < K; k0 += kInner) {
    const int64_t inner = std::min(kInner, K - k0);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < inner; ++k) {
        pa[i * inner + k] = alpha * (ta ? a[(k0 + k) * lda + i0 + i] : a[(i0 + i) * lda + k0 + k]);
      }
    }
    for (int64_t j0 = 0; j0 < N; j0 += kColumns) {
      const int64_t columns = std::min(kColumns, N - j0);
      for (int64_t k = 0; k < inner; ++k) {
        for (int64_t j = 0; j < columns; ++j) {
          pb[k * columns + j] = tb ? b[(j0 + j) * ldb + k0 + k] : b[(k0 + k) * ldb + j0 + j];
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        double* const out = c + (i0 + i) * ldc + j0;
        for (int64_t k = 0; k < inner; ++k) {
          const double x = pa[i * inner + k];
          const double* const row = pb + k * columns;
#pragma omp simd
          for (int64_t j = 0; j < columns; ++j) out[j] += x * row[j];
        }
      }
    }
  }
}

template <typename T>
void scale_rows(int64_t M, int64_t N, T beta, T* c, int64_t ldc) {
  if (beta == T(1)) return;
  for (int64_t i = 0; i < M; ++i) {
    T* const row = c + i * ldc;
    if (beta == T(0)) {
      std::fill(row, row + N, T(0));
    } else {
      for (int64_t j = 0; j < N; ++j) row[j] *= beta;
    }
  }
}

void product(bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const double* a,
             int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  const bool parallel = omp_in_parallel() == 0 && M > kRows && M * N * K > (int64_t{1} << 18);
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t i = 0; i < M; i += kRows) {
    const int64_t end = std::min(i + kRows, M);
    scale_rows(end - i, N, beta, c + i * ldc, ldc);
    product_rows(ta, tb, i, end, N, K, alpha, a, lda, b, ldb, c, ldc);
  }
}

}  // namespace

template <typename T>
void gemm(bool ta, bool tb, int64_t M, int64_t N, int64_t K, T alpha, const T* a, int64_t lda,
          const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  SMELT_CHECK(ShapeError, M >= 0 && N >= 0 && K >= 0,
              "gemm: sizes must not be negative: M " << M << ", N " << N << ", K " << K);
  if (M == 0 || N == 0) return;
  // The stride of a single row means nothing; callers may pass any.
  const auto leading = [&](const char* name, int64_t rows, int64_t columns, int64_t stride) {
    if (rows <= 1) return std::max<int64_t>(columns, 1);
    SMELT_CHECK(ShapeError, stride >= columns,
                "gemm: row stride of " << name << " is " << stride << " for rows of " << columns);
    return std::max<int64_t>(stride, 1);
  };
  ldc = leading("c", M, N, ldc);
  if (K == 0) return scale_rows(M, N, beta, c, ldc);
  lda = ta ? leading("a", K, M, lda) : leading("a", M, K, lda);
  ldb = tb ? leading("b", N, K, ldb) : leading("b", K, N, ldb);
  product(ta, tb, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
}

template void gemm(bool, bool, int64_t, int64_t, int64_t, float, const float*, int64_t,
                   const float*, int64_t, float, float*, int64_t);
template void gemm(bool, bool, int64_t, int64_t, int64_t, double, const double*, int64_t,
                   const double*, int64_t, double, double*, int64_t);

}  // namespace smelt::kernels::cpu
