// Products on blas.h. The grouped ones hand blocks of one group each to the threads, largest groups
// cut up, so that uneven experts still fill all cores; one block is one single-threaded product.
#include "tensor/kernels/gemm.h"

#include <algorithm>

#include <omp.h>

#include "tensor/cpu/blas.h"
#include "tensor/gemm.h"

namespace smelt {

bool has_native_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

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

}  // namespace

void matmul(const Tensor& c, const Tensor& a, const Tensor& b, double alpha, double beta) {
  const Layout la(a), lb(b);
  const int64_t ldc = c.dim(0) == 1 ? c.dim(1) : std::max(c.strides()[0], c.dim(1));
  dispatch_float(c.dtype(), "matmul", [&](auto tag) {
    using T = acc_t<decltype(tag)>;
    gemm<T>(la.transposed, lb.transposed, c.dim(0), c.dim(1), a.dim(1), T(alpha),
            static_cast<const T*>(a.raw()), la.leading, static_cast<const T*>(b.raw()), lb.leading,
            T(beta), static_cast<T*>(c.raw()), ldc);
  });
}

void grouped_matmul(const Tensor& y, const Tensor& x, const Tensor& w,
                    const std::vector<int64_t>& offsets) {
  const int64_t K = x.dim(1), N = w.dim(2), rows = x.dim(0);
  const int64_t step = std::clamp<int64_t>(rows / (4 * omp_get_max_threads()) + 1, 32, 256);
  const std::vector<Block> blocks =
      cut(w.dim(0), step, [&](int64_t g) { return offsets[size_t(g) + 1] - offsets[size_t(g)]; });
  const Layout lw(w);
  const int64_t group_stride = w.strides()[0];
  dispatch_float(y.dtype(), "grouped_matmul", [&](auto tag) {
    using T = acc_t<decltype(tag)>;
    const auto* px = static_cast<const T*>(x.raw());
    const auto* pw = static_cast<const T*>(w.raw());
    auto* py = static_cast<T*>(y.raw());
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& b = blocks[i];
      const int64_t first = offsets[size_t(b.group)] + b.begin;
      gemm<T>(false, lw.transposed, b.end - b.begin, N, K, T(1), px + first * K, K,
              pw + b.group * group_stride, lw.leading, T(0), py + first * N, N);
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
  dispatch_float(c.dtype(), "grouped_outer", [&](auto tag) {
    using T = acc_t<decltype(tag)>;
    const auto* pa = static_cast<const T*>(a.raw());
    const auto* pb = static_cast<const T*>(b.raw());
    auto* pc = static_cast<T*>(c.raw());
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Block& block = blocks[i];
      const int64_t first = offsets[size_t(block.group)];
      const int64_t rows = offsets[size_t(block.group) + 1] - first;
      gemm<T>(true, false, block.end - block.begin, N, rows, T(1), pa + first * M + block.begin, M,
              pb + first * N, N, T(1), pc + (block.group * M + block.begin) * N, N);
    }
  });
}

}  // namespace smelt::kernels::cpu
