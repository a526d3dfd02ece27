#include "autograd/linear.h"

#include "autograd/elementwise.h"
#include "tests/autograd/gradient_check.h"

namespace smelt {
namespace {

using namespace testing;
using Variables = std::vector<Variable>;

const GradientCheck kProducts = {.same_bits_in_f32 = false};

BOOST_AUTO_TEST_SUITE(linear_functions)

BOOST_AUTO_TEST_CASE(gradients_of_linear) {
  struct Case {
    int64_t tokens, in, out;
  };
  for (const Case& c : {Case{5, 3, 7},
                        {1, 9, 2},
                        {4, 1, 3},
                        {3, 4, 1},
                        {1, 1, 1},
                        {0, 3, 2},
                        {3, 0, 2},
                        {3, 2, 0},
                        {17, 13, 19}}) {
    const std::vector<Tensor> inputs = random_inputs({{c.tokens, c.in}, {c.out, c.in}});
    BOOST_TEST_CONTEXT("linear") {
      check_gradients(single([](const Variables& x) { return linear(x[0], x[1]); }), inputs,
                      kProducts);
    }
    BOOST_TEST_CONTEXT("linear_f32") {
      check_gradients(single([](const Variables& x) { return linear_f32(x[0], x[1]); }), inputs,
                      kProducts);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_grouped_linear) {
  struct Case {
    std::vector<int64_t> offsets;
    int64_t in, out;
  };
  const Case cases[] = {{{0, 2, 2, 5, 6}, 3, 5}, {{0, 4}, 3, 2},       {{0, 0, 0, 7}, 2, 3},
                        {{0, 1, 2, 3}, 1, 1},    {{0, 0, 0, 0}, 3, 2}, {{0, 3, 3}, 0, 2},
                        {{0, 3, 5}, 2, 0},       {{0, 11, 24}, 9, 17}};
  for (const Case& c : cases) {
    const auto groups = int64_t(c.offsets.size()) - 1;
    check_gradients(
        single([&](const Variables& x) { return grouped_linear(x[0], x[1], c.offsets); }),
        random_inputs({{c.offsets.back(), c.in}, {groups, c.out, c.in}}), kProducts);
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_one_variable_on_both_sides) {
  check_gradients(single([](const Variables& x) { return linear(x[0], x[0]); }),
                  random_inputs({{4, 3}}), kProducts);
}

BOOST_AUTO_TEST_CASE(grouped_linear_is_linear_group_by_group) {
  const Variable x(random_tensor({6, 4}, DType::f64, 1)),
      w(random_tensor({3, 2, 4}, DType::f64, 2));
  const Tensor y = grouped_linear(x, w, {0, 2, 2, 6}).data();
  const auto expert = [&](int64_t g) { return Variable(w.data().slice(0, g, g + 1).view({2, 4})); };
  check_close(y.slice(0, 0, 2), linear(Variable(x.data().slice(0, 0, 2)), expert(0)).data(), 1e-14,
              1e-14);
  check_close(y.slice(0, 2, 6), linear(Variable(x.data().slice(0, 2, 6)), expert(2)).data(), 1e-14,
              1e-14);
}

BOOST_AUTO_TEST_CASE(router_logits_keep_what_bf16_would_round_away) {
  // CASES 16: 1 + 2^-9 is no bf16 number, but the sum of two of them.
  const Variable x(Tensor::from<float>({1, 1}, {1, 2}).to(DType::bf16));
  const Variable w(Tensor::from<float>({1, 0, 1, 0x1p-9f}, {2, 2}).to(DType::bf16));
  const Variable logits = linear_f32(x, w);
  BOOST_TEST(logits.dtype() == DType::f32);
  BOOST_TEST(doubles(logits.data()) == std::vector<double>({1, 1 + 0x1p-9}));
  BOOST_TEST(linear(x, w).dtype() == DType::bf16);
  BOOST_TEST(doubles(linear(x, w).data()) == std::vector<double>({1, 1}));
}

BOOST_AUTO_TEST_CASE(weight_gradients_of_bf16_accumulate_in_f32) {
  const Variable x(Tensor::full({1, 1}, 1, {DType::bf16, {}}));
  const Variable w(Tensor::full({1, 1}, 1, {DType::bf16, {}}), true);
  const Variable g(Tensor::full({1, 1, 1}, 1, {DType::bf16, {}}), true);
  for (int i = 0; i < 300; ++i) {
    backward(sum(linear(x, w)));
    backward(sum(grouped_linear(x, g, {0, 1})));
  }
  BOOST_TEST(w.grad().dtype() == DType::f32);
  BOOST_TEST(w.grad().item() == 300);
  BOOST_TEST(g.grad().item() == 300);
}

BOOST_AUTO_TEST_CASE(refuses_what_does_not_fit) {
  const Variable x(random_tensor({2, 3})), w(random_tensor({4, 5})), flat(random_tensor({3}));
  BOOST_CHECK_EXCEPTION(linear(x, w), ShapeError,
                        says("linear: x [2, 3] does not fit weight [4, 5]"));
  BOOST_CHECK_EXCEPTION(linear_f32(x, w), ShapeError, says("linear_f32: x [2, 3]"));
  BOOST_CHECK_THROW(linear(flat, w), ShapeError);
  BOOST_CHECK_THROW(linear(x, Variable(random_tensor({4, 3}, DType::f64))), DTypeError);
  const Variable experts(random_tensor({2, 4, 3}));
  BOOST_CHECK_THROW(grouped_linear(x, w, {0, 2}), ShapeError);
  BOOST_CHECK_EXCEPTION(grouped_linear(x, experts, {0, 2}), ShapeError, says("2 offsets"));
  BOOST_CHECK_EXCEPTION(grouped_linear(x, experts, {0, 1, 3}), ShapeError,
                        says("must equal the rows (3 vs 2)"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
