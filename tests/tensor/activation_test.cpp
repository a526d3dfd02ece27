#include "tensor/activation.h"

#include <boost/test/unit_test.hpp>

#include "tensor/cpu/simd.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

const Shape kShapes[] = {{0, 8}, {3, 0}, {1, 2}, {5, 14}, {7, 352}};

Tensor naive(const Tensor& gate_up) {
  const auto R = size_t(gate_up.dim(0)), F = size_t(gate_up.dim(1) / 2);
  const std::vector<double> a = doubles(gate_up);
  std::vector<double> y(R * F);
  for (size_t i = 0; i < R * F; ++i) {
    const double g = a[i / F * 2 * F + i % F], u = a[i / F * 2 * F + F + i % F];
    y[i] = g / (1 + std::exp(-g)) * u;
  }
  return Tensor::from(y, {int64_t(R), int64_t(F)});
}

Tensor naive_backward(const Tensor& dy, const Tensor& gate_up) {
  const auto F = size_t(gate_up.dim(1) / 2);
  const std::vector<double> a = doubles(gate_up), d = doubles(dy);
  std::vector<double> dx(a.size());
  for (size_t i = 0; i < d.size(); ++i) {
    const size_t gate = i / F * 2 * F + i % F, up = gate + F;
    const double g = a[gate], s = 1 / (1 + std::exp(-g));
    dx[gate] = d[i] * a[up] * (s + g * s * (1 - s));
    dx[up] = d[i] * g * s;
  }
  return Tensor::from(dx, gate_up.shape());
}

BOOST_AUTO_TEST_SUITE(activation)

BOOST_AUTO_TEST_CASE(swiglu_and_its_gradient_match_a_naive_reference) {
  for (const DType dtype : kFloating) {
    for (const Shape& shape : kShapes) {
      BOOST_TEST_CONTEXT(dtype << " " << to_string(shape)) {
        const Tensor x = random_tensor(shape, dtype, 1, 3);
        const Tensor dy = random_tensor({shape[0], shape[1] / 2}, dtype, 2);
        check_close(swiglu(x), naive(x), tolerance::elementwise(dtype, 6, 10));
        check_close(swiglu_backward(dy, x), naive_backward(dy, x),
                    tolerance::elementwise(dtype, 10, 30));
        BOOST_TEST(swiglu(x).dtype() == dtype);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_gradient_agrees_with_finite_differences) {
  const Tensor x = random_tensor({3, 10}, DType::f64, 1), dy = random_tensor({3, 5}, DType::f64, 2);
  const std::vector<double> d = doubles(dy), grad = doubles(swiglu_backward(dy, x));
  constexpr double h = 1e-5;
  for (size_t i = 0; i < grad.size(); ++i) {
    const auto loss = [&](double step) {
      std::vector<double> a = doubles(x);
      a[i] += step;
      const std::vector<double> y = doubles(swiglu(Tensor::from(a, x.shape())));
      double total = 0;
      for (size_t j = 0; j < y.size(); ++j) total += y[j] * d[j];
      return total;
    };
    BOOST_TEST(std::abs((loss(h) - loss(-h)) / (2 * h) - grad[i]) < 1e-8);
  }
}

BOOST_AUTO_TEST_CASE(extreme_gates_saturate_without_nan) {
  for (const DType dtype : kFloating) {
    const Tensor x =
        Tensor::from(std::vector<float>{-1e4f, -200, 200, 1e4f, 2, 2, 2, 2}, {1, 8}).to(dtype);
    check_close(swiglu(x), naive(x), tolerance::elementwise(dtype, 2));
    const Tensor dy = Tensor::full({1, 4}, 1, {dtype, {}});
    check_close(
        swiglu_backward(dy, x),
        Tensor::from(std::vector<double>{0, 0, 2, 2, 0, 0, doubles(x)[2], doubles(x)[3]}, {1, 8}),
        tolerance::elementwise(dtype, 2));
  }
}

BOOST_AUTO_TEST_CASE(vector_exp_is_accurate_over_the_whole_range) {
  using kernels::cpu::vector_exp;
  double worst = 0;
  for (double x = -87; x < 88.7; x += 0.00317) {
    const double exact = std::exp(double(float(x)));
    worst = std::max(worst, std::abs(double(vector_exp(float(x))) - exact) / exact);
  }
  BOOST_TEST(worst < 0x1p-22);                 // two units in the last place
  for (double x = -104; x < -87; x += 0.01) {  // subnormal results
    const double exact = std::exp(double(float(x)));
    BOOST_TEST(std::abs(double(vector_exp(float(x))) - exact) <= 0x1p-22 * exact + 0x1p-149);
  }
  BOOST_TEST(vector_exp(0.0f) == 1.0f);
  BOOST_TEST(vector_exp(89.0f) == float(kInfinity));
  BOOST_TEST(vector_exp(float(kInfinity)) == float(kInfinity));
  BOOST_TEST(vector_exp(-110.0f) == 0.0f);
  BOOST_TEST(vector_exp(-float(kInfinity)) == 0.0f);
  BOOST_TEST(std::isnan(vector_exp(float(kNaN))));
  BOOST_TEST(std::isnan(vector_exp(-float(kNaN))));
}

// Case 53.
BOOST_AUTO_TEST_CASE(strided_inputs_give_the_bits_of_contiguous_ones) {
  for (const DType dtype : kFloating) {
    const Tensor x = random_tensor({6, 22}, dtype, 1), dy = random_tensor({6, 11}, dtype, 2);
    check_same_bits(swiglu(strided(x)), swiglu(x));
    check_same_bits(swiglu_backward(strided(dy), strided(x)), swiglu_backward(dy, x));
    const Tensor wide = random_tensor({1, 1}, dtype, 3).expand({6, 11});
    check_same_bits(swiglu_backward(wide, x), swiglu_backward(wide.clone(), x));
  }
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_number_of_threads) {
  const Tensor x = random_tensor({300, 260}), dy = random_tensor({300, 130}, DType::f32, 2);
  check_same_bits_for_any_threads([&] {
    return std::vector<Tensor>{swiglu(x), swiglu_backward(dy, x)};
  });
}

BOOST_AUTO_TEST_CASE(refusals_name_both_shapes) {
  BOOST_CHECK_EXCEPTION(
      swiglu(Tensor::zeros({3, 5})), ShapeError,
      says("swiglu: gate_up must have an even number of columns, shape is [3, 5]"));
  BOOST_CHECK_EXCEPTION(swiglu(Tensor::zeros({4})), ShapeError,
                        says("swiglu: gate_up must have 2 dimensions, shape is [4]"));
  BOOST_CHECK_EXCEPTION(swiglu(Tensor::zeros({4, 2}, {DType::i32, {}})), DTypeError,
                        says("swiglu: gate_up must be f32, bf16 or f64, is i32"));
  const Tensor x = Tensor::zeros({3, 8});
  BOOST_CHECK_EXCEPTION(swiglu_backward(Tensor::zeros({3, 8}), x), ShapeError,
                        says("swiglu_backward: dy [3, 8] must have half the columns of gate_up "
                             "[3, 8]"));
  BOOST_CHECK_EXCEPTION(swiglu_backward(Tensor::zeros({3, 4}, {DType::bf16, {}}), x), DTypeError,
                        says("swiglu_backward: dtypes differ: bf16 [3, 4] and f32 [3, 8]"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
