// Products of tensors against plain loops in double; the product of one pair is tested in
// blas_test.cpp.
#include "tensor/gemm.h"

#include <cmath>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "tensor/rng.h"
#include "tests/tolerance.h"

using namespace smelt;

namespace {

Tensor normal(const Shape& shape, uint64_t seed, DType dtype) {
  const Random random(seed, "gemm");
  std::vector<double> values(static_cast<size_t>(numel_of(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i);
  return Tensor::from(values, shape).to(dtype);
}

std::vector<double> values(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

/// alpha * a b + beta * c of matrices.
std::vector<double> reference(const Tensor& a, const Tensor& b, double alpha = 1, double beta = 0,
                              const Tensor& c = {}) {
  const auto x = values(a), y = values(b);
  const auto M = size_t(a.dim(0)), K = size_t(a.dim(1)), N = size_t(b.dim(1));
  std::vector<double> result(M * N);
  if (c.defined()) result = values(c);
  for (double& value : result) value *= beta;
  for (size_t i = 0; i < M; ++i) {
    for (size_t k = 0; k < K; ++k) {
      for (size_t j = 0; j < N; ++j) result[i * N + j] += alpha * x[i * K + k] * y[k * N + j];
    }
  }
  return result;
}

/// Sums of `terms` products of numbers that are hardly ever above 4.
void check_close(const Tensor& got, const std::vector<double>& want, int64_t terms) {
  const auto allowed = testing::tolerance::sum(got.dtype(), terms, 16);
  const auto x = values(got);
  BOOST_REQUIRE(x.size() == want.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = std::abs(x[i] - want[i]);
    if (!(difference <= allowed.atol + allowed.rtol * std::abs(want[i]))) {
      BOOST_ERROR("element " << i << " is " << x[i] << ", not " << want[i]);
      return;
    }
  }
}

Tensor matrix(const Tensor& x, int64_t group) {
  return x.slice(0, group, group + 1).view({x.dim(1), x.dim(2)});
}

/// x as a view whose rows lie apart, its last two dimensions exchanged in memory if asked for.
Tensor strided(const Tensor& x, bool transposed) {
  const Tensor source = transposed ? x.transpose(-2, -1) : x;
  Shape shape = source.shape();
  const int64_t width = shape.back();
  shape.back() += 7;
  const Tensor view = Tensor::full(shape, std::nan(""), x.options()).slice(-1, 3, 3 + width);
  view.copy_(source);
  return transposed ? view.transpose(-2, -1) : view;
}

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f64};

}  // namespace

BOOST_AUTO_TEST_SUITE(gemm_op)

BOOST_AUTO_TEST_CASE(matmul_of_odd_and_strided_operands_matches_loops) {
  // The last has several blocks of rows and of columns where results are rounded block by block.
  const struct {
    int64_t M, N, K;
  } sizes[] = {{1, 1, 1}, {5, 3, 0}, {600, 1100, 0}, {33, 17, 70}, {700, 1100, 9}};
  for (const DType dtype : kDTypes) {
    for (const auto& s : sizes) {
      const Tensor a = normal({s.M, s.K}, 1, dtype), b = normal({s.K, s.N}, 2, dtype);
      const auto want = reference(a, b);
      BOOST_TEST_CONTEXT(dtype << " M " << s.M << " N " << s.N << " K " << s.K) {
        check_close(matmul(a, b), want, s.K);
        for (const bool ta : {false, true}) {
          for (const bool tb : {false, true}) {
            check_close(matmul(strided(a, ta), strided(b, tb)), want, s.K);
          }
        }
        const Tensor c = strided(normal({s.M, s.N}, 3, dtype), false);
        const auto sum = reference(a, b, 0.5, -2, c);
        matmul_(c, a, b, 0.5, -2);
        check_close(c, sum, s.K + 1);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(bf16_products_add_up_in_f32) {
  const Tensor a = normal({40, 30}, 1, DType::bf16), b = normal({30, 20}, 2, DType::bf16);
  const Tensor c = normal({40, 20}, 3, DType::f32);
  const auto want = reference(a, b, 1, 1, c);
  matmul_(c, a, b, 1, 1);
  check_close(c, want, 31);
}

BOOST_AUTO_TEST_CASE(grouped_products_match_loops_with_empty_and_uneven_groups) {
  const std::vector<std::vector<int64_t>> patterns = {
      {0, 0, 0, 0, 0}, {0, 1, 1, 8, 8}, {0, 300, 301, 333, 400}, {0, 0, 0, 0, 37}};
  const int64_t K = 21, N = 13;
  for (const DType dtype : kDTypes) {
    const Tensor w = normal({4, K, N}, 2, dtype);
    for (const auto& offsets : patterns) {
      const int64_t rows = offsets.back();
      const Tensor x = normal({rows, K}, 1, dtype), dy = normal({rows, N}, 4, dtype);
      const Tensor c = normal({4, K, N}, 3, accumulation_dtype(dtype));
      BOOST_TEST_CONTEXT(dtype << " offsets " << to_string(offsets)) {
        std::vector<double> want, outer;
        for (int64_t g = 0; g < 4; ++g) {
          const int64_t begin = offsets[size_t(g)], end = offsets[size_t(g) + 1];
          const Tensor part = x.slice(0, begin, end);
          for (const double value : reference(part, matrix(w, g))) want.push_back(value);
          for (const double value :
               reference(part.transpose(0, 1), dy.slice(0, begin, end), 1, 1, matrix(c, g))) {
            outer.push_back(value);
          }
        }
        for (const bool transposed : {false, true}) {
          check_close(grouped_matmul(strided(x, false), strided(w, transposed), offsets), want, K);
        }
        grouped_outer_(c, x, strided(dy, false), offsets);
        check_close(c, outer, rows + 1);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
