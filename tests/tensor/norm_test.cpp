#include "tensor/norm.h"

#include <boost/test/unit_test.hpp>

#include "tensor/elementwise.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

constexpr double kEps = 1e-6;
const Shape kShapes[] = {{0, 4}, {1, 1}, {3, 1}, {2, 3, 5}, {5, 64}, {9, 333}, {7}, {4, 0}};

struct Reference {
  Tensor y, rstd, dx, dweight;
};

/// Everything in double, element by element.
Reference naive(const Tensor& x, const Tensor& weight, const Tensor& dy, double eps) {
  const std::vector<double> a = doubles(x), w = doubles(weight), d = doubles(dy);
  const size_t width = w.size(), rows = width ? a.size() / width : size_t(x.dim(0));
  std::vector<double> y(a.size()), rstd(rows), dx(a.size()), dw(width);
  for (size_t r = 0; r < rows; ++r) {
    double squares = 0, dot = 0;
    for (size_t c = 0; c < width; ++c) squares += a[r * width + c] * a[r * width + c];
    rstd[r] = 1 / std::sqrt((width ? squares / double(width) : 0) + eps);
    for (size_t c = 0; c < width; ++c) {
      const size_t i = r * width + c;
      y[i] = a[i] * rstd[r] * w[c];
      dot += d[i] * w[c] * a[i] * rstd[r];
      dw[c] += d[i] * a[i] * rstd[r];
    }
    for (size_t c = 0; c < width; ++c) {
      const size_t i = r * width + c;
      dx[i] = rstd[r] * (d[i] * w[c] - a[i] * rstd[r] * dot / double(width));
    }
  }
  return {Tensor::from(y, x.shape()), Tensor::from(rstd), Tensor::from(dx, x.shape()),
          Tensor::from(dw)};
}

BOOST_AUTO_TEST_SUITE(norm)

BOOST_AUTO_TEST_CASE(forward_and_backward_match_a_naive_reference) {
  for (const DType dtype : kFloating) {
    for (const Shape& shape : kShapes) {
      BOOST_TEST_CONTEXT(dtype << " " << to_string(shape)) {
        const int64_t width = shape.back();
        const Tensor x = random_tensor(shape, dtype, 1), dy = random_tensor(shape, dtype, 2);
        const Tensor weight = random_tensor({width}, dtype, 3);
        const Reference expected = naive(x, weight, dy, kEps);
        const RmsNorm result = rms_norm(x, weight, kEps);
        const DType full = accumulation_dtype(dtype);
        // bf16 rounds twice: x * rstd, then the product.
        Tolerance limit = tolerance::sum(dtype, width, 4);
        limit.rtol *= 2;
        check_close(result.y, expected.y, limit);
        BOOST_TEST(result.y.dtype() == dtype);
        BOOST_TEST(result.rstd.dtype() == full);
        check_close(result.rstd, expected.rstd, tolerance::sum(full, width, 1));
        const RmsNormGrad grad = rms_norm_backward(dy, x, weight, result.rstd);
        // dx can cancel: its error is relative to rstd * |g|, up to about 100 for the single
        // column.
        const double size = 10 * (doubles(result.rstd).empty() ? 1 : 10);
        check_close(grad.dx, expected.dx, tolerance::sum(dtype, width, size));
        check_close(grad.dweight, expected.dweight, tolerance::sum(full, x.numel(), 10));
        BOOST_TEST(grad.dweight.dtype() == full);
      }
    }
  }
}

// One pass against its parts: the forward rounds at the same places, the gradient once less.
BOOST_AUTO_TEST_CASE(fused_residual_addition_equals_its_parts) {
  for (const DType dtype : kFloating) {
    for (const Shape& shape : kShapes) {
      for (const double alpha : {1.0, 0.5, -0.75}) {
        BOOST_TEST_CONTEXT(dtype << " " << to_string(shape) << " " << alpha) {
          const Tensor x = random_tensor(shape, dtype, 1), branch = random_tensor(shape, dtype, 2);
          const Tensor weight = random_tensor({shape.back()}, dtype, 3);
          const Tensor dsum = random_tensor(shape, dtype, 4), dy = random_tensor(shape, dtype, 5);
          const AddRmsNorm fused = add_rms_norm(strided(x), branch, alpha, weight, kEps);
          const Tensor sum = add_scaled(x, branch, alpha);
          const RmsNorm plain = rms_norm(sum, weight, kEps);
          check_same_bits(fused.sum, sum);
          check_same_bits(fused.norm.y, plain.y);
          check_same_bits(fused.norm.rstd, plain.rstd);

          const AddRmsNormGrad grad =
              add_rms_norm_backward(dsum, strided(dy), sum, alpha, weight, plain.rstd);
          const RmsNormGrad of_norm = rms_norm_backward(dy, sum, weight, plain.rstd);
          // The plain way rounds dx of the norm to the dtype before it adds.
          double size = 1;
          for (const double d : doubles(of_norm.dx)) size = std::max(size, std::abs(d));
          const double unit = dtype == DType::bf16 ? 1.0 / 256 : dtype == DType::f32 ? 1e-7 : 1e-15;
          check_close(grad.dx, add_scaled(of_norm.dx, dsum, 1), {4 * unit * size, 4 * unit});
          check_close(grad.dbranch, scale(grad.dx, alpha), 0, 0);
          BOOST_TEST((grad.dbranch.raw() == grad.dx.raw()) == (alpha == 1 || grad.dx.numel() == 0));
          check_same_bits(grad.dweight, of_norm.dweight);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(known_values) {
  const Tensor x = Tensor::from(std::vector<double>{3, 4}, {1, 2});
  const Tensor weight = Tensor::from(std::vector<double>{1, 2});
  const RmsNorm result = rms_norm(x, weight, 0);  // mean square 12.5
  const double r = 1 / std::sqrt(12.5);
  check_close(result.y, Tensor::from(std::vector<double>{3 * r, 8 * r}, {1, 2}), 1e-15, 0);
}

BOOST_AUTO_TEST_CASE(bf16_rounds_before_the_product_with_the_weight) {
  const Tensor x = random_tensor({4, 64}, DType::bf16, 1);
  const Tensor weight = random_tensor({64}, DType::bf16, 2);
  const RmsNorm result = rms_norm(x, weight, kEps);
  const std::vector<float> r = result.rstd.to_vector<float>();
  const std::vector<bf16> a = x.to_vector<bf16>(), w = weight.to_vector<bf16>();
  std::vector<bf16> expected(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    expected[i] = bf16(float(w[i % 64]) * float(bf16(float(a[i]) * r[i / 64])));
  }
  check_same_bits(result.y, Tensor::from(expected, {4, 64}));
}

BOOST_AUTO_TEST_CASE(rows_of_zeros_stay_finite) {
  const Tensor x = Tensor::zeros({2, 8}), weight = Tensor::full({8}, 1);
  const RmsNorm result = rms_norm(x, weight, kEps);
  check_close(result.y, x, 0, 0);
  const RmsNormGrad grad = rms_norm_backward(Tensor::full({2, 8}, 1), x, weight, result.rstd);
  check_close(grad.dx, Tensor::full({2, 8}, 1000), 1e-6, 0);  // 1 / sqrt(1e-6)
}

// Case 53.
BOOST_AUTO_TEST_CASE(strided_inputs_give_the_bits_of_contiguous_ones) {
  const Tensor x = random_tensor({4, 3, 10}), dy = random_tensor({4, 3, 10}, DType::f32, 2);
  const Tensor weight = random_tensor({10}, DType::f32, 3);
  const RmsNorm expected = rms_norm(x, weight, kEps), result = rms_norm(strided(x), weight, kEps);
  check_same_bits(result.y, expected.y);
  check_same_bits(result.rstd, expected.rstd);
  const RmsNormGrad a = rms_norm_backward(dy, x, weight, expected.rstd);
  const RmsNormGrad b = rms_norm_backward(strided(dy), strided(x), weight, expected.rstd);
  check_same_bits(a.dx, b.dx);
  check_same_bits(a.dweight, b.dweight);
  const Tensor one = random_tensor({1, 1, 1});
  const Tensor wide = one.expand({4, 3, 10});
  check_same_bits(rms_norm_backward(wide, x, weight, expected.rstd).dx,
                  rms_norm_backward(wide.clone(), x, weight, expected.rstd).dx);
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_number_of_threads) {
  for (const Shape& shape : {Shape{1000, 48}, Shape{20000, 16}, Shape{70, 1100}}) {
    const Tensor x = random_tensor(shape, DType::f32, 1), dy = random_tensor(shape, DType::f32, 2);
    const Tensor weight = random_tensor({shape[1]}, DType::f32, 3);
    check_same_bits_for_any_threads([&] {
      const RmsNorm n = rms_norm(x, weight, kEps);
      const RmsNormGrad g = rms_norm_backward(dy, x, weight, n.rstd);
      const AddRmsNorm a = add_rms_norm(x, dy, 0.5, weight, kEps);
      const AddRmsNormGrad b = add_rms_norm_backward(dy, x, a.sum, 0.5, weight, a.norm.rstd);
      return std::vector<Tensor>{n.y,      n.rstd, g.dx,      g.dweight, a.sum,
                                 a.norm.y, b.dx,   b.dbranch, b.dweight};
    });
  }
}

BOOST_AUTO_TEST_CASE(refusals_name_the_argument_and_both_shapes) {
  const Tensor x = Tensor::zeros({2, 3}), weight = Tensor::zeros({3});
  const Tensor rstd = Tensor::zeros({2});
  BOOST_CHECK_EXCEPTION(rms_norm(x, Tensor::zeros({2}), kEps), ShapeError,
                        says("rms_norm: weight must be [3] for x [2, 3], shape is [2]"));
  BOOST_CHECK_EXCEPTION(rms_norm(Tensor::zeros({}), weight, kEps), ShapeError,
                        says("rms_norm: x must have at least 1 dimension"));
  BOOST_CHECK_EXCEPTION(rms_norm(x, weight.to(DType::bf16), kEps), DTypeError,
                        says("rms_norm: dtypes differ: f32 [2, 3] and bf16 [3]"));
  BOOST_CHECK_EXCEPTION(add_rms_norm(x, Tensor::zeros({3, 2}), 1, weight, kEps), ShapeError,
                        says("add_rms_norm: shapes differ: [3, 2] and [2, 3]"));
  BOOST_CHECK_EXCEPTION(add_rms_norm_backward(x.to(DType::f64), x, x, 1, weight, rstd), DTypeError,
                        says("add_rms_norm_backward: dtypes differ: f64 [2, 3] and f32 [2, 3]"));
  BOOST_CHECK_EXCEPTION(rms_norm_backward(Tensor::zeros({3, 2}), x, weight, rstd), ShapeError,
                        says("rms_norm_backward: shapes differ: [3, 2] and [2, 3]"));
  BOOST_CHECK_EXCEPTION(rms_norm_backward(x, x, weight, Tensor::zeros({3})), ShapeError,
                        says("rms_norm_backward: rstd must be [2], shape is [3]"));
  BOOST_CHECK_EXCEPTION(rms_norm_backward(x, x, weight, rstd.to(DType::f64)), DTypeError,
                        says("rms_norm_backward: rstd must be f32, is f64"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
