#include "autograd/routing.h"

#include "autograd/elementwise.h"
#include "autograd/linear.h"
#include "tests/autograd/gradient_check.h"

namespace smelt {
namespace {

using namespace testing;
using Variables = std::vector<Variable>;

// Router arithmetic exists in f32 and f64 only.
const GradientCheck kRouter = {.dtypes = {DType::f32}};

/// Probabilities that keep away from zero, where dividing by their sum is smooth.
Tensor probabilities(int64_t tokens, int64_t experts) {
  return softmax(random_tensor({tokens, experts}, DType::f64, 5, 0.5));
}

BOOST_AUTO_TEST_SUITE(routing)

BOOST_AUTO_TEST_CASE(gradients_of_softmax_and_z_loss) {
  for (const Shape& shape : {Shape{3, 5}, {1, 7}, {6, 1}, {1, 1}, {0, 4}, {9, 33}}) {
    BOOST_TEST_CONTEXT("softmax") {
      check_gradients(single([](const Variables& x) { return softmax(x[0]); }),
                      random_inputs({shape}), kRouter);
    }
    BOOST_TEST_CONTEXT("router_z_loss") {
      check_gradients(single([](const Variables& x) { return router_z_loss(x[0], 0.3); }),
                      random_inputs({shape}), kRouter);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_topk_weights) {
  for (const bool normalize : {false, true}) {
    for (const auto& [tokens, experts, k] :
         {std::tuple{4, 5, 2}, {1, 3, 3}, {3, 4, 1}, {2, 1, 1}, {0, 4, 2}}) {
      const Tensor probs = probabilities(tokens, experts);
      const Tensor indices = topk(probs, k);  // fixed: the choice itself has no gradient
      BOOST_TEST_CONTEXT("topk_weights, normalize " << normalize << ", k " << k) {
        check_gradients(
            single([&](const Variables& x) { return topk_weights(x[0], indices, normalize); }),
            {probs}, kRouter);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_segment_dot) {
  for (const auto& [tokens, experts, segments] :
       {std::tuple{6, 3, 2}, {4, 1, 4}, {5, 7, 1}, {1, 1, 1}, {0, 3, 2}, {3, 0, 3}}) {
    const Tensor load = random_tensor({segments, experts}, DType::f64, 7);
    check_gradients(single([&](const Variables& x) { return segment_dot(x[0], load, -0.7); }),
                    random_inputs({{tokens, experts}}), kRouter);
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_row_movement) {
  for (const auto& [tokens, experts, k, width] : {std::tuple{5, 4, 2, 3},
                                                  {1, 1, 1, 1},
                                                  {3, 5, 3, 1},
                                                  {7, 2, 1, 5},
                                                  {0, 3, 2, 4},
                                                  {4, 3, 2, 0}}) {
    const Tensor scores = random_tensor({tokens, experts}, DType::f64, 3);
    const SlotOrder order = sort_slots(topk(scores, k), experts);
    BOOST_TEST_CONTEXT("permute_rows") {
      check_gradients(single([&](const Variables& x) {
                        return permute_rows(x[0], order.token_of_row, order.row_of_slot);
                      }),
                      random_inputs({{tokens, width}}));
    }
    BOOST_TEST_CONTEXT("combine_rows") {
      check_gradients(single([&](const Variables& x) {
                        const Variable weights = cast(x[1], accumulation_dtype(x[0].dtype()));
                        return combine_rows(x[0], weights, order.token_of_row, order.row_of_slot);
                      }),
                      random_inputs({{tokens * k, width}, {tokens, k}}));
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_a_whole_router) {
  const int64_t tokens = 5, hidden = 4, experts = 6, k = 2;
  const std::vector<Tensor> inputs = random_inputs({{tokens, hidden}, {experts, hidden}});
  const Tensor indices =
      topk(softmax(linear_f32(Variable(inputs[0]), Variable(inputs[1])).data()), k);
  const Tensor load = random_tensor({1, experts}, DType::f64, 9);
  for (const bool normalize : {false, true}) {
    check_gradients(
        [&](const Variables& x) {
          const Variable logits = linear_f32(x[0], x[1]);
          const Variable probs = softmax(logits);
          return Variables{topk_weights(probs, indices, normalize), segment_dot(probs, load, 0.1),
                           router_z_loss(logits, 0.01)};
        },
        inputs, {.dtypes = {DType::f32}, .same_bits_in_f32 = false});
  }
}

BOOST_AUTO_TEST_CASE(gates_with_and_without_renormalising) {
  // CASES 18: logits (2, 1, 0), K 2.
  const Variable logits(Tensor::from<double>({2, 1, 0}, {1, 3}), true);
  const Variable probs = softmax(logits);
  const Tensor indices = topk(probs.data(), 2);
  const std::vector<double> plain = doubles(topk_weights(probs, indices, false).data());
  const std::vector<double> renormalised = doubles(topk_weights(probs, indices, true).data());
  BOOST_TEST(std::abs(plain[0] - 0.6652) < 5e-5);
  BOOST_TEST(std::abs(plain[1] - 0.2447) < 5e-5);
  BOOST_TEST(std::abs(renormalised[0] - 0.7311) < 5e-5);
  BOOST_TEST(std::abs(renormalised[1] - 0.2689) < 5e-5);
}

BOOST_AUTO_TEST_CASE(one_renormalised_gate_gives_the_router_no_gradient) {
  // CASES 19.
  const Tensor x = random_tensor({5, 4}, DType::f64, 1), w = random_tensor({3, 4}, DType::f64, 2);
  const Tensor outputs = random_tensor({5, 1}, DType::f64, 3);
  for (const bool normalize : {false, true}) {
    const Variable router(w, true);
    const Variable probs = softmax(linear_f32(Variable(x), router));
    const Tensor indices = topk(probs.data(), 1);
    backward(sum(mul(topk_weights(probs, indices, normalize), Variable(outputs))));
    double norm = 0;
    for (const double g : doubles(router.grad())) norm += g * g;
    if (normalize) {
      BOOST_TEST(norm == 0);
    } else {
      BOOST_TEST(norm > 1e-3);
    }
  }
}

BOOST_AUTO_TEST_CASE(z_loss_literal) {
  // logsumexp(0, 0, 0, 0) = log 4; its square has gradient 2 log(4) / 4 for each logit.
  const Variable logits(Tensor::zeros({1, 4}, {DType::f64, {}}), true);
  const Variable loss = router_z_loss(logits, 0.5);
  const double log4 = std::log(4.0);
  BOOST_TEST(std::abs(loss.item() - 0.5 * log4 * log4) < 1e-15);
  backward(loss);
  for (const double g : doubles(logits.grad())) BOOST_TEST(std::abs(g - log4 / 4) < 1e-15);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
