// Fused projection and cross-entropy against plain loops in double.
#include "tensor/loss.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "tensor/allocator.h"
#include "tensor/rng.h"
#include "tests/tolerance.h"

using namespace smelt;

namespace {

struct Inputs {
  Tensor x, weight, targets;

  /// Targets: `missing` percent have none.
  Inputs(int64_t tokens, int64_t size, int64_t words, DType dtype, uint64_t missing = 20)
      : x(normal({tokens, size}, 1, dtype)), weight(normal({words, size}, 2, dtype)) {
    const Random random(3, "targets");
    std::vector<int32_t> t;
    for (uint64_t i = 0; i < uint64_t(tokens); ++i) {
      const bool none = random.below(2 * i, 100) < missing;
      t.push_back(none ? -1 : int32_t(random.below(2 * i + 1, uint64_t(words))));
    }
    targets = Tensor::from(t);
  }
  static Tensor normal(const Shape& shape, uint64_t seed, DType dtype) {
    const Random random(seed, "loss");
    std::vector<double> values(static_cast<size_t>(numel_of(shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5 * random.normal(i);
    return Tensor::from(values, shape).to(dtype);
  }
  LinearCrossEntropy run(bool want_grad = true) const {
    return linear_cross_entropy(x, weight, targets, want_grad);
  }
};

std::vector<double> values(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

struct Expected {
  std::vector<double> losses, dx, dweight;
};

Expected reference(const Inputs& in) {
  const auto x = values(in.x), w = values(in.weight);
  const auto targets = in.targets.to_vector<int32_t>();
  const auto size = size_t(in.x.dim(1)), words = size_t(in.weight.dim(0));
  Expected e{std::vector<double>(targets.size()), std::vector<double>(x.size()),
             std::vector<double>(w.size())};
  std::vector<double> p(words);
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    double max = -HUGE_VAL, sum = 0;
    for (size_t j = 0; j < words; ++j) {
      p[j] = 0;
      for (size_t d = 0; d < size; ++d) p[j] += x[t * size + d] * w[j * size + d];
      max = std::max(max, p[j]);
    }
    const double at_target = p[size_t(targets[t])];
    for (size_t j = 0; j < words; ++j) sum += p[j] = std::exp(p[j] - max);
    e.losses[t] = max + std::log(sum) - at_target;
    for (size_t j = 0; j < words; ++j) {
      const double d_logit = p[j] / sum - (j == size_t(targets[t]) ? 1 : 0);
      for (size_t d = 0; d < size; ++d) {
        e.dx[t * size + d] += d_logit * w[j * size + d];
        e.dweight[j * size + d] += d_logit * x[t * size + d];
      }
    }
  }
  return e;
}

double distance(const Tensor& got, const std::vector<double>& want) {
  const auto x = values(got);
  BOOST_REQUIRE(x.size() == want.size());
  double worst = 0, largest = 1e-3;
  for (size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    const double difference = std::abs(x[i] - want[i]);
    worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
  }
  return worst / largest;
}

/// For `distance`: logits are sums of H products of two numbers near 1/2, the normaliser and dx
/// sums of V terms, dweight one of T.
double tolerance(const Inputs& in, DType dtype) {
  return testing::tolerance::softmax_of_products(dtype, in.x.dim(1), 0.25,
                                                 std::max(in.weight.dim(0), in.x.dim(0)));
}

/// Of a gradient: in bf16 the gradient of the logits is rounded before it is multiplied.
double gradient_tolerance(const Inputs& in, DType dtype) {
  return tolerance(in, dtype) +
         (in.x.dtype() == DType::bf16 ? testing::unit_roundoff(DType::bf16) : 0);
}

bool same_bits(const Tensor& x, const Tensor& y) {
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.raw(), y.raw(), size_t(x.bytes())) == 0;
}

void check_same_bits(const LinearCrossEntropy& x, const LinearCrossEntropy& y) {
  BOOST_TEST(same_bits(x.losses, y.losses));
  BOOST_TEST(same_bits(x.dx, y.dx));
  BOOST_TEST(same_bits(x.dweight, y.dweight));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loss_op)

BOOST_AUTO_TEST_CASE(matches_the_reference_over_sizes_and_dtypes) {
  struct {
    int64_t tokens, size, words;
    uint64_t missing;
  } const sizes[] = {{1, 1, 2, 0},     {37, 13, 101, 20},   {5, 3, 1, 0},
                     {1500, 5, 7, 30}, {200, 4, 70001, 30}, {130, 1100, 1000, 10}};
  for (const auto& s : sizes) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const Inputs in(s.tokens, s.size, s.words, dtype, s.missing);
      const Expected e = reference(in);
      const LinearCrossEntropy got = in.run();
      BOOST_TEST_CONTEXT("T " << s.tokens << " H " << s.size << " V " << s.words << " " << dtype) {
        BOOST_TEST(distance(got.losses, e.losses) < tolerance(in, got.losses.dtype()));
        BOOST_TEST(distance(got.dx, e.dx) < gradient_tolerance(in, dtype));
        BOOST_TEST(distance(got.dweight, e.dweight) < gradient_tolerance(in, got.losses.dtype()));
        const LinearCrossEntropy losses_only = in.run(false);
        BOOST_TEST(same_bits(losses_only.losses, got.losses));
        BOOST_TEST(!losses_only.dx.defined());
        BOOST_TEST(!losses_only.dweight.defined());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_match_finite_differences) {
  const Inputs in(9, 5, 11, DType::f64, 30);
  const LinearCrossEntropy g = in.run();
  const auto objective = [&] {
    double sum = 0;
    for (const double loss : values(in.run(false).losses)) sum += loss;
    return sum;
  };
  for (const auto& [x, grad] : {std::pair{in.x, g.dx}, {in.weight, g.dweight}}) {
    std::vector<double> numeric;
    double* const data = x.data<double>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double old = data[i], h = 1e-5;
      data[i] = old + h;
      const double up = objective();
      data[i] = old - h;
      numeric.push_back((up - objective()) / (2 * h));
      data[i] = old;
    }
    BOOST_TEST(distance(grad, numeric) < 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(tokens_without_target_give_zero_and_may_hold_anything) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Inputs clean(300, 16, 50, dtype, 40);
    Inputs filled = clean;
    filled.x = clean.x.clone();
    const auto targets = clean.targets.to_vector<int32_t>();
    for (int64_t t = 0; t < 300; ++t) {
      if (targets[size_t(t)] < 0) {
        filled.x.slice(0, t, t + 1).fill_(std::numeric_limits<double>::quiet_NaN());
      }
    }
    const LinearCrossEntropy got = filled.run();
    check_same_bits(clean.run(), got);
    for (int64_t t = 0; t < 300; ++t) {
      if (targets[size_t(t)] >= 0) continue;
      BOOST_TEST(got.losses.slice(0, t, t + 1).item() == 0);
      for (const double value : values(got.dx.slice(0, t, t + 1))) BOOST_TEST(value == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_row_with_nan_gets_loss_nan_and_leaves_others_alone) {
  Inputs in(20, 8, 33, DType::f32, 0);
  const auto clean = values(in.run().losses);
  in.x.slice(0, 7, 8).fill_(std::numeric_limits<double>::quiet_NaN());
  const auto got = values(in.run().losses);
  for (size_t t = 0; t < 20; ++t) BOOST_TEST((t == 7 ? std::isnan(got[t]) : got[t] == clean[t]));
}

BOOST_AUTO_TEST_CASE(case_65_empty_and_single_sizes_work) {
  const Inputs none(64, 8, 20, DType::f32, 100);
  const LinearCrossEntropy got = none.run();
  for (const Tensor& x : {got.losses, got.dx, got.dweight}) {
    for (const double value : values(x)) BOOST_TEST(value == 0);
  }
  const LinearCrossEntropy empty = Inputs(0, 8, 20, DType::bf16).run();
  BOOST_TEST(empty.losses.numel() == 0);
  for (const double value : values(empty.dweight)) BOOST_TEST(value == 0);
  const LinearCrossEntropy one_word = Inputs(5, 8, 1, DType::f32, 0).run();
  for (const Tensor& x : {one_word.losses, one_word.dx, one_word.dweight}) {
    for (const double value : values(x)) BOOST_TEST(value == 0);
  }
  const LinearCrossEntropy no_columns = Inputs(3, 0, 4, DType::f32, 0).run();
  for (const double value : values(no_columns.losses)) {
    BOOST_TEST(std::abs(value - std::log(4.0)) < 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(large_logits_do_not_overflow) {
  Inputs in(4, 3, 9, DType::f32, 0);
  in.x.fill_(3000);
  const Expected e = reference(in);
  BOOST_TEST(distance(in.run().losses, e.losses) < 1e-5);
}

BOOST_AUTO_TEST_CASE(runs_repeat_bit_for_bit_views_and_poisoned_memory_included) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Inputs in(600, 24, 8200, dtype, 20);
    const LinearCrossEntropy first = in.run();
    check_same_bits(first, in.run());
    allocator().set_poison(true);
    check_same_bits(first, in.run());
    allocator().set_poison(false);
    Inputs views = in;
    views.x = in.x.transpose(0, 1).clone().transpose(0, 1);
    views.weight = Tensor::empty({8200, 30}, {dtype, {}}).slice(1, 3, 27);
    views.weight.copy_(in.weight);
    check_same_bits(first, views.run());
  }
}

BOOST_AUTO_TEST_CASE(logits_never_exist_for_all_tokens) {
  const Inputs in(8192, 8, 8192, DType::f32, 0);
  allocator().reset_peak();
  const auto before = allocator().stats().live_bytes;
  const LinearCrossEntropy got = in.run();
  // All logits would take 256 MiB.
  BOOST_TEST(allocator().stats().peak_live_bytes - before < size_t{20} << 20);
}

BOOST_AUTO_TEST_CASE(wrong_arguments_are_refused_by_name) {
  const Inputs good(4, 3, 9, DType::f32, 0);
  const auto refuses = [](const Inputs& in, const std::string& text) {
    BOOST_CHECK_EXCEPTION(in.run(), Error, [&](const Error& e) {
      return std::string(e.what()).find(text) != std::string::npos;
    });
  };
  Inputs in = good;
  in.targets = Tensor::from(std::vector<int32_t>{0, 1, 9, -1});
  refuses(in, "linear_cross_entropy: target 9 of token 2 is outside [-1, 9)");
  in.targets = Tensor::from(std::vector<int32_t>{0, -2, 1, -1});
  refuses(in, "target -2 of token 1");
  in.targets = Tensor::from(std::vector<int32_t>{0, 1});
  refuses(in, "targets must be [4], shape is [2]");
  in = good;
  in.weight = Inputs::normal({9, 4}, 1, DType::f32);
  refuses(in, "x [4, 3] and weight [9, 4]");
  in.weight = good.weight.to(DType::bf16);
  refuses(in, "dtypes differ");
}

BOOST_AUTO_TEST_SUITE_END()
