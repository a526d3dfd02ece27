#include "nn/optimizer.h"

#include "autograd/elementwise.h"
#include "nn/modules.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

OptimizerSpan span(double value, double grad, int64_t n = 1, bool decay = true) {
  return {Tensor::full({n}, value, {DType::f64, {}}), Tensor::full({n}, grad, {DType::f64, {}}),
          decay};
}

BOOST_AUTO_TEST_SUITE(optimizer)

BOOST_AUTO_TEST_CASE(a_resumed_run_makes_the_same_third_update) {
  // CASES 68: gradients 1, 1, -1 without decay.
  const AdamWConfig config = {.beta1 = 0.9, .beta2 = 0.95, .eps = 0, .weight_decay = 0};
  const auto third_update = [&](bool keep_moments, bool keep_steps) {
    AdamW first({span(0, 1)}, config);
    first.step(0.1, 1);
    first.step(0.1, 1);
    BOOST_TEST(std::abs(first.spans()[0].param.item() + 0.2) < 1e-14);
    AdamW second({span(0, -1)}, config);
    if (keep_moments) {
      second.m(0).copy_(first.m(0));
      second.v(0).copy_(first.v(0));
    }
    if (keep_steps) second.set_steps(first.steps());
    second.step(0.1, 1);
    return -second.spans()[0].param.item();
  };
  BOOST_TEST(std::abs(third_update(true, true) - 0.02620) < 5e-6);
  BOOST_TEST(std::abs(third_update(true, false) - 0.04204) < 5e-6);
  BOOST_TEST(std::abs(third_update(false, false) + 0.1) < 5e-6);
}

BOOST_AUTO_TEST_CASE(many_steps_match_a_plain_reference) {
  const AdamWConfig config = {.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.2};
  constexpr int64_t kSize = 7;
  AdamW adamw({{random_tensor({kSize}, DType::f64, 1), Tensor::zeros({kSize}, {DType::f64, {}})},
               span(2, 3, 2, false)},
              config);
  std::vector<double> param = doubles(adamw.spans()[0].param), m(kSize), v(kSize);
  for (int step = 1; step <= 20; ++step) {
    const double lr = 0.1 / step, clip = step % 3 == 0 ? 0.25 : 1;
    const Tensor grad = random_tensor({kSize}, DType::f64, uint64_t(100 + step));
    adamw.spans()[0].grad.copy_(grad);
    adamw.step(lr, clip);
    const std::vector<double> g = doubles(grad);
    for (size_t i = 0; i < size_t(kSize); ++i) {
      const double scaled = clip * g[i];
      m[i] = 0.8 * m[i] + 0.2 * scaled;
      v[i] = 0.9 * v[i] + 0.1 * scaled * scaled;
      const double m_hat = m[i] / (1 - std::pow(0.8, step));
      const double v_hat = v[i] / (1 - std::pow(0.9, step));
      param[i] = param[i] * (1 - lr * 0.2) - lr * m_hat / (std::sqrt(v_hat) + 1e-3);
    }
  }
  BOOST_TEST(adamw.steps() == 20);
  check_close(adamw.spans()[0].param, Tensor::from(param), 1e-12, 1e-12);
  check_close(adamw.m(0), Tensor::from(m), 1e-12, 1e-12);
  check_close(adamw.v(0), Tensor::from(v), 1e-12, 1e-12);
}

BOOST_AUTO_TEST_CASE(a_looped_weight_is_updated_once) {
  // CASES 40: two visits, decay 0.1, lr 1, gradient 0: x 0.9, not 0.81.
  ParameterStore store(DType::f32, {});
  const Linear layer(store, "w", 3, 3, 0.02);
  store.variables()[0].data().fill_(1);
  AdamW adamw(AdamW::spans_of(store), {.weight_decay = 0.1});
  const Variable x(Tensor::zeros({2, 3}));
  backward(sum(layer(layer(x))));
  adamw.step(1, 1);
  for (const double w : doubles(layer.weight().data())) BOOST_TEST(std::abs(w - 0.9) < 1e-7);
  BOOST_TEST(adamw.steps() == 1);
  BOOST_TEST(adamw.spans().size() == 1u);
  BOOST_TEST(adamw.state_bytes() == 2 * 4 * store.numel());
}

BOOST_AUTO_TEST_CASE(gains_and_embeddings_do_not_decay) {
  // CASES 71: gradient 0, lr 1, decay 0.1, all values 1, one step.
  ParameterStore store(DType::f32, {});
  const Linear linear(store, "linear", 2, 3, 0.02);
  const Embedding embedding(store, "embedding", 4, 2, 0.02);
  const RmsNormModule norm(store, "norm", 3, 1e-6);
  const SwigluMlp mlp(store, "mlp", 2, 3, 0.02);
  store.add({.name = "experts", .value = {}, .expert = true, .pieces = {}}, {2, 3, 2});
  for (const Variable& v : store.variables()) v.data().fill_(1);
  AdamW adamw(AdamW::spans_of(store), {.weight_decay = 0.1});
  adamw.step(1, 1);
  for (const Parameter* parameter : store.all()) {
    const bool decays = parameter->name != "embedding" && parameter->name != "norm";
    BOOST_TEST_CONTEXT(parameter->name) {
      for (const double w : doubles(parameter->value.data()))
        BOOST_TEST(w == (decays ? double(1.0f - 0.1f) : 1), boost::test_tools::tolerance(1e-7));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_zero_parameter_stays_finite) {
  // CASES 43.
  AdamW adamw({span(0, 0, 3), span(0, 1e-30)}, {});
  adamw.step(1, 1);
  for (const OptimizerSpan& s : adamw.spans())
    for (const double w : doubles(s.param)) BOOST_TEST(std::isfinite(w));
  BOOST_TEST(adamw.spans()[0].param.slice(0, 0, 1).item() == 0);
}

BOOST_AUTO_TEST_CASE(spans_are_views_of_parameters_and_their_gradients) {
  ParameterStore store(DType::f32, {});
  Linear layer(store, "w", 2, 2, 0.02);
  store.variables()[0].data().fill_(1);
  const Tensor flat = Tensor::full({4}, 5);
  layer.weight().set_grad(flat.view({2, 2}));
  const std::vector<OptimizerSpan> spans = AdamW::spans_of(store);
  BOOST_TEST(spans[0].grad.shares_storage_with(flat));
  BOOST_TEST(spans[0].param.shares_storage_with(layer.weight().data()));
  BOOST_TEST(spans[0].decay);
  AdamW adamw(spans, {.eps = 0, .weight_decay = 0});
  adamw.step(0.5, 1);
  BOOST_TEST(doubles(layer.weight().data()) == std::vector<double>(4, 0.5),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(clipping_by_the_global_norm) {
  // CASES 25 on one rank: gradients (3, 4) and 12 make 13.
  AdamW adamw({{Tensor::zeros({2}), Tensor::from<float>({3, 4})},
               {Tensor::zeros({1}), Tensor::from<float>({12})}},
              {});
  BOOST_TEST(adamw.grad_sum_squares() == 169);
  BOOST_TEST(clip_factor(13, 1) == 1.0 / 13);
  BOOST_TEST(clip_factor(13, 13) == 1);
  BOOST_TEST(clip_factor(0.5, 1) == 1);
  BOOST_TEST(clip_factor(13, 0) == 1);
  BOOST_TEST(clip_factor(0, 1) == 1);
}

BOOST_AUTO_TEST_CASE(refusals) {
  BOOST_CHECK_THROW(AdamW({{Tensor::zeros({2}), Tensor::zeros({3})}}, {}), ShapeError);
  ParameterStore low(DType::bf16, {});
  low.add({.name = "w", .value = {}, .pieces = {}}, {2});
  BOOST_CHECK_EXCEPTION(AdamW::spans_of(low), DTypeError, says("AdamW: w"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
