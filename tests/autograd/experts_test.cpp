// Experts on one rank: gradients, and the same results as the single functions they replace.
#include "autograd/experts.h"

#include "autograd/elementwise.h"
#include "autograd/layers.h"
#include "autograd/linear.h"
#include "autograd/routing.h"
#include "tensor/allocator.h"
#include "tests/autograd/gradient_check.h"

namespace smelt {
namespace {

using namespace testing;
using Variables = std::vector<Variable>;

const GradientCheck kProducts = {.same_bits_in_f32 = false};

Routes routes_of(int64_t tokens, int64_t experts, int64_t k) {
  const SlotOrder order =
      sort_slots(topk(random_tensor({tokens, experts}, DType::f64, 3), k), experts);
  Routes routes{order.token_of_row, order.row_of_slot, {0}};
  for (const int64_t count : order.tokens_per_expert)
    routes.offsets.push_back(routes.offsets.back() + count);
  return routes;
}

/// Weights are f32 whatever the dtype of the rows.
Variable as_weights(const Variable& weights, const Variable& rows) {
  return cast(weights, accumulation_dtype(rows.dtype()));
}

struct Sizes {
  int64_t tokens, experts, k, in, width;
};

constexpr Sizes kSizes[] = {{5, 4, 2, 3, 2}, {1, 1, 1, 1, 1}, {3, 7, 3, 2, 5},
                            {4, 3, 1, 5, 3}, {0, 3, 2, 4, 2}, {19, 5, 2, 9, 7}};

BOOST_AUTO_TEST_SUITE(experts)

BOOST_AUTO_TEST_CASE(gradients_of_routed_products) {
  for (const Sizes& s : kSizes) {
    const Routes routes = routes_of(s.tokens, s.experts, s.k);
    BOOST_TEST_CONTEXT("routed_linear, tokens " << s.tokens << " experts " << s.experts) {
      check_gradients(single([&](const Variables& x) { return routed_linear(x[0], x[1], routes); }),
                      random_inputs({{s.tokens, s.in}, {s.experts, s.width, s.in}}), kProducts);
    }
    BOOST_TEST_CONTEXT("routed_swiglu_linear, tokens " << s.tokens << " experts " << s.experts) {
      check_gradients(
          single([&](const Variables& x) {
            return routed_swiglu_linear(x[0], x[1], as_weights(x[2], x[0]), routes);
          }),
          random_inputs(
              {{s.tokens * s.k, 2 * s.width}, {s.experts, s.in, s.width}, {s.tokens, s.k}}),
          kProducts);
    }
  }
}

BOOST_AUTO_TEST_CASE(single_functions_give_the_same) {
  for (const Sizes& s : kSizes) {
    const Routes routes = routes_of(s.tokens, s.experts, s.k);
    const std::vector<Tensor> inputs = random_inputs({{s.tokens, s.in},
                                                      {s.experts, 2 * s.width, s.in},
                                                      {s.experts, s.in, s.width},
                                                      {s.tokens, s.k}});
    const Tensor upstream = random_tensor({s.tokens, s.in}, DType::f64, 8);
    const auto run = [&](bool fused) {
      Variables x;
      for (const Tensor& input : inputs) x.emplace_back(input, true);
      Variable y;
      if (fused) {
        y = routed_swiglu_linear(routed_linear(x[0], x[1], routes), x[2], x[3], routes);
      } else {
        const Variable rows = permute_rows(x[0], routes.token_of_row, routes.row_of_slot);
        const Variable out = grouped_linear(swiglu(grouped_linear(rows, x[1], routes.offsets)),
                                            x[2], routes.offsets);
        y = combine_rows(out, x[3], routes.token_of_row, routes.row_of_slot);
      }
      std::vector<Tensor> results = {y.data()};
      backward({y}, {upstream});
      for (const Variable& v : x) results.push_back(v.grad());
      return results;
    };
    const std::vector<Tensor> fused = run(true), single_functions = run(false);
    for (size_t i = 0; i < fused.size(); ++i) {
      if (!fused[i].defined() && !single_functions[i].defined()) continue;
      BOOST_TEST(relative_error(fused[i], single_functions[i]) < 1e-12, "result " << i);
    }
  }
}

BOOST_AUTO_TEST_CASE(only_gate_and_up_are_kept_for_backward) {
  const int64_t tokens = 64, experts = 4, k = 2, in = 32, width = 16, rows = tokens * k;
  const Routes routes = routes_of(tokens, experts, k);
  const Variable x(random_tensor({tokens, in}, DType::f32, 1), true);
  const Variable gate_up(random_tensor({experts, 2 * width, in}, DType::f32, 2), true);
  const Variable down(random_tensor({experts, in, width}, DType::f32, 3), true);
  const Variable weights(random_tensor({tokens, k}, DType::f32, 4), true);
  const auto live = [] { return allocator().stats().live_bytes; };
  const auto before = live();
  const Variable y = routed_swiglu_linear(routed_linear(x, gate_up, routes), down, weights, routes);
  BOOST_TEST(live() - before == int64_t(4 * (rows * 2 * width + tokens * in)));
}

BOOST_AUTO_TEST_CASE(refuses_shapes_that_do_not_fit) {
  const Routes routes = routes_of(3, 2, 1);
  const Variable x(Tensor::zeros({3, 4})), wrong(Tensor::zeros({2, 6, 5}));
  BOOST_CHECK_THROW(routed_linear(x, wrong, routes), ShapeError);
  BOOST_CHECK_THROW(routed_linear(x, x, routes), ShapeError);
  BOOST_CHECK_THROW(routed_swiglu_linear(Variable(Tensor::zeros({3, 6})), wrong,
                                         Variable(Tensor::zeros({3, 1})), routes),
                    ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
