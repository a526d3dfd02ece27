// Products on blas.h. The grouped ones hand blocks of one group each to the threads, largest groups
// cut up, so that uneven experts still fill all cores; one block is one single-threaded product.
#include "tensor/kernels/gemm.h"

#include <algorithm>

#include <omp.h>

#include "tensor/cpu/blas.h"
#include "tensor/cpu/simd.h"
#include "tensor/gemm.h"

namespace smelt {

bool has_native_bf16() { return kernels::cpu::native_bf16(); }

}  // namespace smelt

namespace smelt::kernels::cpu {
namespace {

/// How BLAS sees the last two dimensions: stored row-major as they are or transposed.
struct Layout {
  explicit Layout(const Tensor& t) {
    const int64_t rows = t.dim(-2), columns = t.dim(-1);
    const int64_t row_stride = t.strides()[size_t(t.rank() - 2)],
                  column_stride = t.strides()[size_t(t.rank() - 1)];
    // The stride of a dimension of size 1 means nothing and must not decide.
    transposed = !((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns));
    const int64_t stored = transposed ? rows : columns;
    const bool single = (transposed ? columns : rows) == 1;
    leading = std::max<int64_t>(single ? stored : (transposed ? column_stride : row_stride), 1);
  }
  bool transposed;
  int64_t leading;
};

struct Block {
  int64_t group, begin, end;
};

/// Cuts each group's range of length extent(g) into runs of at most `step`.
template <typename Extent>
std::vector<Block> cut(int64_t groups, int64_t step, Extent extent) {
  std::vector<Block> blocks;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t n = extent(g);
    const int64_t parts = (n + step - 1) / step;
    for (int64_t p = 0; p < parts; ++p) blocks.push_back({g, n * p / parts, n * (p + 1) / parts});
  }
  return blocks;
}

/// Products whose result is stored in the operands' type: for bf16, threads form them in f32, a
/// block at a time, and round that while it is in cache.
template <typename T>
class Rounded {
 public:
  Rounded(int64_t max_rows, int64_t max_columns) {
    if constexpr (!std::is_same_v<T, acc_t<T>>) {
      sums_ = Tensor::empty({omp_get_max_threads(), max_rows, max_columns});
    }
  }
  /// c = alpha * op(a) op(b), at most max_rows x max_columns.
  void gemm(bool ta, bool tb, int64_t M, int64_t N, int64_t K, acc_t<T> alpha, const T* a,
            int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc) const {
    if constexpr (std::is_same_v<T, acc_t<T>>) {
      cpu::gemm(ta, tb, M, N, K, alpha, a, lda, b, ldb, T(0), c, ldc);
    } else {
      const int64_t block = sums_.strides()[0];
      float* const sums = sums_.template data<float>() + omp_get_thread_num() * block;
      cpu::gemm(ta, tb, M, N, K, alpha, a, lda, b, ldb, 0.0f, sums, N);
      for (int64_t i = 0; i < M; ++i) {
#pragma omp simd
        for (int64_t j = 0; j < N; ++j) c[i * ldc + j] = round_to<T>(sums[i * N + j]);
      }
    }
  }

 private:
  Tensor sums_;
};

/// Rows per block, so that threads get a few blocks each of a size worth its own product.
int64_t block_rows(int64_t rows) {
  return std::clamp<int64_t>(rows / (4 * omp_get_max_threads()) + 1, 32, 512);
}

}  // namespace

void matmul(const Tensor& c, const Tensor& a, const Tensor& b, double alpha, double beta) {
  const Layout la(a), lb(b);
  const int64_t M = c.dim(0), N = c.dim(1), K = a.dim(1);
  const int64_t ldc = M == 1 ? N : std::max(c.strides()[0], N);
  dispatch_float(a.dtype(), "matmul", [&](auto tag) {
    using T = decltype(tag);
    using A = acc_t<T>;
    const T* const pa = a.data<T>();
    const T* const pb = b.data<T>();
    // A product of few rows is shared among the threads by its columns; the library would not.
    const bool few = M < 64 && N * K > (int64_t{1} << 15);
    const int64_t columns = few ? std::min<int64_t>(N, 128) : N;
    // Distances of a's rows and b's columns; an empty matrix has no memory to count from.
    const int64_t a_row = a.numel() == 0 ? 0 : la.transposed ? 1 : la.leading;
    const int64_t b_column = b.numel() == 0 ? 0 : lb.transposed ? lb.leading : 1;
    if (c.dtype() == dtype_of<A>::value) {
      A* const pc = c.data<A>();
      if (!few) {
        return gemm(la.transposed, lb.transposed, M, N, K, A(alpha), pa, la.leading, pb, lb.leading,
                    A(beta), pc, ldc);
      }
#pragma omp parallel for schedule(static)
      for (int64_t j = 0; j < N; j += columns) {
        gemm(la.transposed, lb.transposed, M, std::min(columns, N - j), K, A(alpha), pa, la.leading,
             pb + j * b_column, lb.leading, A(beta), pc + j, ldc);
      }
      return;
    }
    const int64_t rows = std::min(M, block_rows(M)), width = std::min<int64_t>(columns, 512);
    const Rounded<T> product(rows, width);
    T* const pc = c.data<T>();
#pragma omp parallel for collapse(2) schedule(dynamic)
    for (int64_t i = 0; i < M; i += rows) {
      for (int64_t j = 0; j < N; j += width) {
        product.gemm(la.transposed, lb.transposed, std::min(rows, M - i), std::min(width, N - j), K,
                     A(alpha), pa + i * a_row, la.leading, pb + j * b_column, lb.leading,
                     pc + i * ldc + j, ldc);
      }
    }
  });
}

void grouped_matmul(const Tensor& y, const Tensor& x, const Tensor& w,
                    const std::vector<int64_t>& offsets) {
  const int64_t K = x.dim(1), N = w.dim(2), step = block_rows(x.dim(0));
  const std::vector<Block> blocks =
      cut(w.dim(0), step, [&](int64_t g) { return offsets[size_t(g) + 1] - offsets[size_t(g)]; });
  const Layout lw(w);
  const int64_t group_stride = w.numel() == 0 ? 0 : w.strides()[0];
  dispatch_float(y.dtype(), "grouped_matmul", [&](auto tag) {
    using T = decltype(tag);
    const T* const px = x.data<T>();
    const T* const pw = w.data<T>();
    T* const py = y.data<T>();
    const Rounded<T> product(step, N);
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& b = blocks[i];
      const int64_t first = offsets[size_t(b.group)] + b.begin;
      product.gemm(false, lw.transposed, b.end - b.begin, N, K, 1, px + first * K, K,
                   pw + b.group * group_stride, lw.leading, py + first * N, N);
    }
  });
}

void grouped_outer(const Tensor& c, const Tensor& a, const Tensor& b,
                   const std::vector<int64_t>& offsets) {
  const int64_t G = c.dim(0), M = c.dim(1), N = c.dim(2);
  // Rows of the result are independent: few groups are cut along them to fill the threads.
  const int64_t parts = std::max<int64_t>(1, 4 * omp_get_max_threads() / G);
  const std::vector<Block> blocks =
      cut(G, std::max<int64_t>(64, (M + parts - 1) / parts),
          [&](int64_t g) { return offsets[size_t(g) + 1] > offsets[size_t(g)] ? M : int64_t{0}; });
  dispatch_float(a.dtype(), "grouped_outer", [&](auto tag) {
    using T = decltype(tag);
    using A = acc_t<T>;
    const T* const pa = a.data<T>();
    const T* const pb = b.data<T>();
    A* const pc = c.data<A>();
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      const int64_t first = offsets[size_t(block.group)];
      const int64_t rows = offsets[size_t(block.group) + 1] - first;
      gemm(true, false, block.end - block.begin, N, rows, A(1), pa + first * M + block.begin, M,
           pb + first * N, N, A(1), pc + (block.group * M + block.begin) * N, N);
    }
  });
}

}  // namespace smelt::kernels::cpu
