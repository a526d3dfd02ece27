#include "tensor/gemm.h"

#include "tensor/flop_counter.h"
#include "tensor/kernels/gemm.h"

namespace smelt {
namespace {

/// t, or a contiguous copy when neither of its last two dimensions has unit stride.
Tensor with_unit_stride(const Tensor& t) {
  const int64_t rows = t.dim(-2), columns = t.dim(-1);
  const auto stride = [&](int64_t d) { return t.strides()[size_t(t.rank() + d)]; };
  const bool plain = (columns == 1 || stride(-1) == 1) && (rows == 1 || stride(-2) >= columns);
  const bool transposed = (rows == 1 || stride(-2) == 1) && (columns == 1 || stride(-1) >= rows);
  return plain || transposed ? t : t.contiguous();
}

/// Of a product [m, k] x [k, n].
double product_flops(int64_t m, int64_t n, int64_t k) {
  return 2.0 * double(m) * double(n) * double(k);
}

void check_product(const char* op, const Tensor& a, const Tensor& b) {
  check_same_options(op, a, b);
  SMELT_CHECK(DTypeError, is_floating(a.dtype()),
              op << ": dtype must be f32, bf16 or f64, not " << a.dtype());
}

void check_offsets(const char* op, const std::vector<int64_t>& offsets, int64_t groups,
                   int64_t rows) {
  SMELT_CHECK(
      ShapeError, int64_t(offsets.size()) == groups + 1,
      op << ": " << offsets.size() << " offsets for " << groups << " groups (one more is needed)");
  SMELT_CHECK(ShapeError, offsets[0] == 0, op << ": offsets[0] must be 0, is " << offsets[0]);
  for (int64_t g = 0; g < groups; ++g) {
    SMELT_CHECK(ShapeError, offsets[size_t(g)] <= offsets[size_t(g) + 1],
                op << ": offsets[" << g + 1 << "] = " << offsets[size_t(g) + 1]
                   << " is below offsets[" << g << "] = " << offsets[size_t(g)]);
  }
  SMELT_CHECK(ShapeError, offsets.back() == rows,
              op << ": offsets[" << groups << "] must equal the rows (" << offsets.back() << " vs "
                 << rows << ")");
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_rank("matmul", "a", a, 2);
  check_rank("matmul", "b", b, 2);
  const Tensor c = Tensor::empty({a.dim(0), b.dim(1)}, a.options());
  matmul_(c, a, b, 1, 0);
  return c;
}

void matmul_(const Tensor& c, const Tensor& a, const Tensor& b, double alpha, double beta) {
  check_rank("matmul", "a", a, 2);
  check_rank("matmul", "b", b, 2);
  check_product("matmul", a, b);
  SMELT_CHECK(ShapeError, a.dim(1) == b.dim(0),
              "matmul: a " << to_string(a.shape()) << " does not fit b " << to_string(b.shape()));
  check_shape("matmul", "c", c, {a.dim(0), b.dim(1)});
  SMELT_CHECK(ShapeError, c.dim(1) == 1 || c.strides()[1] == 1,
              "matmul: c must have unit column stride");
  const DType compute = accumulation_dtype(a.dtype());
  SMELT_CHECK(DTypeError, c.dtype() == a.dtype() || c.dtype() == compute,
              "matmul: c is " << c.dtype() << ", a and b are " << a.dtype());
  if (c.numel() == 0) return;
  if (c.dtype() != compute && beta != 0) {
    const Tensor wide = c.to(compute);
    matmul_(wide, a, b, alpha, beta);
    c.copy_(wide);
    return;
  }
  const Tensor left = with_unit_stride(a), right = with_unit_stride(b);
  FlopCounter::add_products(product_flops(c.dim(0), c.dim(1), a.dim(1)));
  SMELT_DISPATCH(c.device(), matmul, c, left, right, alpha, beta);
}

Tensor grouped_matmul(const Tensor& x, const Tensor& w, const std::vector<int64_t>& offsets) {
  check_rank("grouped_matmul", "x", x, 2);
  check_rank("grouped_matmul", "w", w, 3);
  check_product("grouped_matmul", x, w);
  SMELT_CHECK(
      ShapeError, x.dim(1) == w.dim(1),
      "grouped_matmul: x " << to_string(x.shape()) << " does not fit w " << to_string(w.shape()));
  check_offsets("grouped_matmul", offsets, w.dim(0), x.dim(0));
  const Tensor y = Tensor::empty({x.dim(0), w.dim(2)}, x.options());
  if (y.numel() > 0) {
    const Tensor rows = x.contiguous(), weights = with_unit_stride(w);
    FlopCounter::add_products(product_flops(x.dim(0), x.dim(1), w.dim(2)));
    SMELT_DISPATCH(y.device(), grouped_matmul, y, rows, weights, offsets);
  }
  return y;
}

void grouped_outer_(const Tensor& c, const Tensor& a, const Tensor& b,
                    const std::vector<int64_t>& offsets) {
  check_rank("grouped_outer", "a", a, 2);
  check_rank("grouped_outer", "b", b, 2);
  check_rank("grouped_outer", "c", c, 3);
  check_product("grouped_outer", a, b);
  SMELT_CHECK(
      ShapeError, a.dim(0) == b.dim(0),
      "grouped_outer: rows differ: a " << to_string(a.shape()) << ", b " << to_string(b.shape()));
  check_shape("grouped_outer", "c", c, {c.dim(0), a.dim(1), b.dim(1)});
  check_dtype("grouped_outer", "c", c, accumulation_dtype(a.dtype()));
  SMELT_CHECK(ShapeError, c.is_contiguous(), "grouped_outer: c must be contiguous");
  check_offsets("grouped_outer", offsets, c.dim(0), a.dim(0));
  if (c.numel() == 0 || a.dim(0) == 0) return;
  const Tensor left = a.contiguous(), right = b.contiguous();
  FlopCounter::add_products(product_flops(a.dim(0), a.dim(1), b.dim(1)));
  SMELT_DISPATCH(c.device(), grouped_outer, c, left, right, offsets);
}

}  // namespace smelt
