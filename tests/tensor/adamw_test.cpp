#include "tensor/adamw.h"

#include <boost/test/unit_test.hpp>

#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

struct Buffers {
  Tensor param, grad, m, v;
};

Buffers random_buffers(int64_t n, DType dtype) {
  Buffers b = {random_tensor({n}, dtype, 1), random_tensor({n}, dtype, 2),
               random_tensor({n}, dtype, 3, 0.1), random_tensor({n}, dtype, 4, 0.1)};
  std::vector<double> squares = doubles(b.v);
  for (double& s : squares) s *= s;
  b.v = Tensor::from(squares).to(dtype);
  return b;
}

Buffers naive(const Buffers& b, const AdamWStep& s) {
  std::vector<double> p = doubles(b.param), g = doubles(b.grad), m = doubles(b.m), v = doubles(b.v);
  for (size_t i = 0; i < p.size(); ++i) {
    const double gradient = g[i] * s.grad_scale;
    m[i] = s.beta1 * m[i] + (1 - s.beta1) * gradient;
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * gradient * gradient;
    const double mean = m[i] / (1 - std::pow(s.beta1, double(s.step)));
    const double square = v[i] / (1 - std::pow(s.beta2, double(s.step)));
    p[i] -= s.lr * s.weight_decay * p[i];
    p[i] -= s.lr * mean / (std::sqrt(square) + s.eps);
  }
  return {Tensor::from(p), b.grad, Tensor::from(m), Tensor::from(v)};
}

/// One weight of 0 with fresh moments; returns the parameter after each gradient in turn.
std::vector<double> run(const std::vector<double>& gradients, AdamWStep s, Buffers& b) {
  std::vector<double> params;
  for (const double g : gradients) {
    b.grad.fill_(g);
    adamw_(b.param, b.grad, b.m, b.v, s);
    ++s.step;
    params.push_back(b.param.item());
  }
  return params;
}

Buffers zeros(const Shape& shape, DType dtype) {
  const TensorOptions o = {dtype, {}};
  return {Tensor::zeros(shape, o), Tensor::zeros(shape, o), Tensor::zeros(shape, o),
          Tensor::zeros(shape, o)};
}

BOOST_AUTO_TEST_SUITE(adamw)

BOOST_AUTO_TEST_CASE(one_step_matches_a_naive_reference) {
  for (const DType dtype : kFullPrecision) {
    for (const int64_t n : {0, 1, 7, 1003}) {
      for (const int64_t step : {1, 2, 1000}) {
        BOOST_TEST_CONTEXT(dtype << " n " << n << " step " << step) {
          const AdamWStep s = {0.01, 0.9, 0.95, 1e-8, 0.1, 0.37, step};
          const Buffers b = random_buffers(n, dtype);
          const Buffers expected = naive(b, s);
          adamw_(b.param, b.grad, b.m, b.v, s);
          // The largest update here is lr * m / sqrt(v), below 1.
          check_close(b.param, expected.param, tolerance::elementwise(dtype, 10));
          check_close(b.m, expected.m, tolerance::elementwise(dtype, 3));
          check_close(b.v, expected.v, tolerance::elementwise(dtype, 4));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(decay_is_decoupled_from_the_gradient) {
  Buffers b = zeros({1}, DType::f64);
  b.param.fill_(2);
  run({0}, {.lr = 0.1, .weight_decay = 0.5}, b);
  BOOST_TEST(std::abs(b.param.item() - 2 * (1 - 0.05)) < 1e-15);
  BOOST_TEST(b.m.item() == 0);
}

BOOST_AUTO_TEST_CASE(the_clipping_factor_scales_the_gradient) {
  Buffers a = zeros({1}, DType::f64), b = zeros({1}, DType::f64);
  run({6}, {.lr = 0.1, .grad_scale = 0.5}, a);
  run({3}, {.lr = 0.1}, b);
  check_same_bits(a.m, b.m);
  check_same_bits(a.v, b.v);
  check_same_bits(a.param, b.param);
}

// Case 43: an all-zero parameter stays finite, with and without a gradient.
BOOST_AUTO_TEST_CASE(an_all_zero_parameter_stays_finite) {
  for (const DType dtype : kFullPrecision) {
    const Buffers still = zeros({33}, dtype);
    adamw_(still.param, still.grad, still.m, still.v, {.lr = 0.1, .weight_decay = 0.1});
    check_close(still.param, Tensor::zeros({33}), 0, 0);
    const Buffers moved = zeros({33}, dtype);
    moved.grad.fill_(-2);
    adamw_(moved.param, moved.grad, moved.m, moved.v, {.lr = 0.1, .weight_decay = 0.1});
    check_close(moved.param, Tensor::full({33}, 0.1), 1e-6, 0);
  }
}

// Case 57: a hundred updates of -0.001 arrive in the f32 master; bf16 parameters are refused.
BOOST_AUTO_TEST_CASE(a_hundred_small_updates_arrive_in_the_f32_master) {
  Buffers b = zeros({1}, DType::f32);
  b.param.fill_(1);
  run(std::vector<double>(100, 1.0), {.lr = 0.001, .eps = 0}, b);
  BOOST_TEST(std::abs(b.param.item() - 0.9) < 1e-5);
  const Buffers low = zeros({1}, DType::bf16);
  BOOST_CHECK_EXCEPTION(adamw_(low.param, low.grad, low.m, low.v, {}), DTypeError,
                        says("adamw_: param must be f32 or f64, is bf16"));
}

// Case 68: a resumed run goes on with its counter and its moments.
BOOST_AUTO_TEST_CASE(the_third_update_after_resume_uses_counter_and_moments) {
  for (const DType dtype : kFullPrecision) {
    const AdamWStep first = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 0, .step = 1};
    Buffers b = zeros({1}, dtype);
    const std::vector<double> params = run({1, 1}, first, b);
    BOOST_TEST(std::abs(params[0] + 0.1) < 1e-6);
    BOOST_TEST(std::abs(params[1] + 0.2) < 1e-6);
    const auto third_update = [&](bool keep_moments, int64_t step) {
      Buffers resumed = zeros({1}, dtype);
      resumed.param.copy_(b.param);
      if (keep_moments) {
        resumed.m.copy_(b.m);
        resumed.v.copy_(b.v);
      }
      AdamWStep next = first;
      next.step = step;
      return b.param.item() - run({-1}, next, resumed)[0];
    };
    BOOST_TEST(std::abs(third_update(true, 3) - 0.02620) < 5e-6);
    BOOST_TEST(std::abs(third_update(true, 1) - 0.04204) < 5e-6);  // counter lost
    BOOST_TEST(std::abs(third_update(false, 1) + 0.1) < 5e-6);     // everything lost
  }
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_number_of_threads) {
  check_same_bits_for_any_threads([] {
    const Buffers b = random_buffers(50001, DType::f32);
    adamw_(b.param, b.grad, b.m, b.v, {.lr = 0.01, .weight_decay = 0.1, .step = 3});
    return std::vector<Tensor>{b.param, b.m, b.v};
  });
}

BOOST_AUTO_TEST_CASE(refusals_name_the_buffer_and_both_shapes) {
  const Buffers b = zeros({2, 3}, DType::f32);
  BOOST_CHECK_EXCEPTION(adamw_(b.param, Tensor::zeros({5}), b.m, b.v, {}), ShapeError,
                        says("adamw_: grad [5] must have the size of param [2, 3]"));
  BOOST_CHECK_EXCEPTION(adamw_(b.param, b.grad, b.m, b.v.to(DType::f64), {}), DTypeError,
                        says("adamw_: v must be f32, is f64"));
  BOOST_CHECK_EXCEPTION(adamw_(b.param, b.grad, Tensor(), b.v, {}), ShapeError,
                        says("adamw_: m is an undefined tensor"));
  BOOST_CHECK_EXCEPTION(adamw_(b.param, b.grad, Tensor::zeros({3, 2}).transpose(0, 1), b.v, {}),
                        ShapeError, says("adamw_: m of shape [2, 3] must be contiguous"));
  BOOST_CHECK_EXCEPTION(adamw_(b.param, b.grad, b.m, b.v, {.step = 0}), ConfigError,
                        says("adamw_: step must be at least 1, is 0"));
  adamw_(b.param, Tensor::zeros({6}), b.m, b.v, {});  // flat buffers of the same size will do
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
