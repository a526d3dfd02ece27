// Row-major products: checks and the degenerate cases here, the rest in oneDNN or in plain loops.
#include "tensor/cpu/blas.h"

#include <algorithm>
#include <vector>

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "tensor/cpu/skinny.h"
#include "tensor/kernels/kernels.h"

#ifdef SMELT_ONEDNN_BF16
// Exported by oneDNN since 1.0 like sgemm, but not declared in its headers; CMake has checked that
// the installed library has it.
extern "C" dnnl_status_t dnnl_gemm_bf16bf16f32(char transa, char transb, dnnl_dim_t M, dnnl_dim_t N,
                                               dnnl_dim_t K, float alpha, const smelt::bf16* a,
                                               dnnl_dim_t lda, const smelt::bf16* b, dnnl_dim_t ldb,
                                               float beta, float* c, dnnl_dim_t ldc);
#endif

namespace smelt::kernels::cpu {
namespace {

void check_success(dnnl_status_t status, const char* name, bool ta, bool tb, int64_t M, int64_t N,
                   int64_t K, int64_t lda, int64_t ldb, int64_t ldc) {
  SMELT_CHECK(Error, status == dnnl_success,
              "gemm: " << name << " failed with status " << int(status) << " for [" << M << ", "
                       << K << "] x [" << K << ", " << N << "], transposed " << ta << tb
                       << ", strides " << lda << " " << ldb << " " << ldc);
}

void product(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const float* a,
             int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  check_success(
      dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', M, N, K, alpha, a, lda, b, ldb, beta, c, ldc),
      "sgemm", ta, tb, M, N, K, lda, ldb, ldc);
}

void product(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const bf16* a,
             int64_t lda, const bf16* b, int64_t ldb, float beta, float* c, int64_t ldc) {
#ifdef SMELT_ONEDNN_BF16
  if (native_bf16()) {
    const dnnl_status_t status = dnnl_gemm_bf16bf16f32(ta ? 'T' : 'N', tb ? 'T' : 'N', M, N, K,
                                                       alpha, a, lda, b, ldb, beta, c, ldc);
    return check_success(status, "gemm_bf16bf16f32", ta, tb, M, N, K, lda, ldb, ldc);
  }
#endif
  gemm_widened(ta, tb, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
}

/// Rows [0, rows) of length `columns` of x as floats, rows following each other.
const float* widen(const bf16* x, int64_t rows, int64_t columns, int64_t stride,
                   std::vector<float>& buffer) {
  if (int64_t(buffer.size()) < rows * columns) buffer.resize(size_t(rows * columns));
  float* const target = buffer.data();
#pragma omp parallel for schedule(static) if (omp_in_parallel() == 0 && \
                                              rows * columns > kParallelGrain)
  for (int64_t i = 0; i < rows; ++i) {
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) target[i * columns + j] = float(x[i * stride + j]);
  }
  return target;
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

void few_rows(int64_t M, int64_t N, int64_t K, const float* a, int64_t lda, const float* b,
              int64_t ldb, float* c, int64_t ldc) {
  skinny_product(M, N, K, a, lda, b, ldb, c, ldc);
}
void few_rows(int64_t M, int64_t N, int64_t K, const bf16* a, int64_t lda, const bf16* b,
              int64_t ldb, float* c, int64_t ldc) {
  thread_local std::vector<float> wide;
  skinny_product(M, N, K, widen(a, M, K, lda, wide), K, b, ldb, c, ldc);
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

bool native_bf16() {
#ifdef SMELT_ONEDNN_BF16
  // The values are sets of features.
  constexpr auto kWanted = unsigned(dnnl_cpu_isa_avx512_core_bf16);
  static const bool native = (unsigned(dnnl_get_effective_cpu_isa()) & kWanted) == kWanted;
  return native;
#else
  return false;
#endif
}

void gemm_widened(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const bf16* a,
                  int64_t lda, const bf16* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  // Blocks of either operand stay near 4 MiB as floats, whatever its size; at 256 rows or more per
  // block, converting costs little next to the product.
  constexpr int64_t kBlock = int64_t{1} << 20, kLeast = 256;
  const int64_t rows = std::min(M, std::max(kLeast, kBlock / K)),
                columns = std::min(N, std::max(kLeast, kBlock / K));
  thread_local std::vector<float> wide_a, wide_b;
  for (int64_t i = 0; i < M; i += rows) {
    const int64_t m = std::min(rows, M - i);
    const float* const pa =
        ta ? widen(a + i, K, m, lda, wide_a) : widen(a + i * lda, m, K, lda, wide_a);
    for (int64_t j = 0; j < N; j += columns) {
      const int64_t n = std::min(columns, N - j);
      const float* const pb =
          tb ? widen(b + j * ldb, n, K, ldb, wide_b) : widen(b + j, K, n, ldb, wide_b);
      product(ta, tb, m, n, K, alpha, pa, ta ? m : K, pb, tb ? K : n, beta, c + i * ldc + j, ldc);
    }
  }
}

template <typename T>
void gemm(bool ta, bool tb, int64_t M, int64_t N, int64_t K, acc_t<T> alpha, const T* a,
          int64_t lda, const T* b, int64_t ldb, acc_t<T> beta, acc_t<T>* c, int64_t ldc) {
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
  if constexpr (!std::is_same_v<T, double>) {
    if (!ta && tb && M <= kSkinnyRows && alpha == 1 && beta == 0)
      return few_rows(M, N, K, a, lda, b, ldb, c, ldc);
  }
  product(ta, tb, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
}

template void gemm(bool, bool, int64_t, int64_t, int64_t, float, const float*, int64_t,
                   const float*, int64_t, float, float*, int64_t);
template void gemm(bool, bool, int64_t, int64_t, int64_t, float, const bf16*, int64_t, const bf16*,
                   int64_t, float, float*, int64_t);
template void gemm(bool, bool, int64_t, int64_t, int64_t, double, const double*, int64_t,
                   const double*, int64_t, double, double*, int64_t);

}  // namespace smelt::kernels::cpu
