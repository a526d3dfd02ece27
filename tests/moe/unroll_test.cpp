// A looped model against the plain model that it unrolls to: values, gradients, refusals.
#include "moe/unroll.h"

#include "autograd/elementwise.h"
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

struct Unrolled {
  std::unique_ptr<MoeTransformer> looped, plain;
};

Unrolled unroll(const ModelConfig& config, DType dtype) {
  Unrolled result{make_model(config, dtype),
                  make_model(unrolled_config(config), dtype, dist::World::single(), 99)};
  copy_unrolled(*result.looped, *result.plain);
  return result;
}

/// Gradients of the looped tensors as the chain rule gives them from those of the copies.
NamedTensors summed_over_copies(const Unrolled& models) {
  const NamedTensors copies = gradients_of(*models.plain);
  NamedTensors sums;
  for (const auto& [name, gradient] : copies) {
    std::string looped = name;
    double factor = 1;
    const std::string prefix = "model.layers.";
    if (name.starts_with(prefix)) {
      const size_t dot = name.find('.', prefix.size());
      const ExecutionStep& step =
          models.looped->plan().steps()[size_t(std::stoi(name.substr(prefix.size())))];
      looped = prefix + std::to_string(step.layer) + name.substr(dot);
      if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight"))
        factor = step.residual_scale;  // the copy is factor * W
    }
    const Tensor term = scale(gradient, factor);
    sums[looped] = sums.count(looped) ? add_scaled(sums[looped], term, 1) : term;
  }
  return sums;
}

void check_equal(const ModelConfig& config) {
  const Unrolled models = unroll(config, DType::f64);
  BOOST_CHECK_EQUAL(models.plain->plan().num_layers(), models.looped->plan().executed_depth());
  const ModelInput input = random_batch(2, 8, 5, true).input();
  {
    const NoGrad no_grad;
    const Tensor a = models.looped->logits(models.looped->hidden(input)).data();
    const Tensor b = models.plain->logits(models.plain->hidden(input)).data();
    check_close(a, b, 0, 1e-12 * largest(b));
  }
  // The balance terms average over visits before layers, which a plain model cannot: left out.
  const BalanceConfig off{.balance = Balance::none, .aux_loss_coef = 0, .z_loss_coef = 0};
  const double looped_loss = run_backward(*models.looped, input, off);
  const double plain_loss = run_backward(*models.plain, input, off);
  BOOST_CHECK_CLOSE_FRACTION(looped_loss, plain_loss, 1e-12);
  check_named_close(gradients_of(*models.looped), summed_over_copies(models), 1e-10);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(unroll)

BOOST_AUTO_TEST_CASE(looped_equals_unrolled_in_values_and_gradients) {
  for (const LoopOrder order : {LoopOrder::span, LoopOrder::layer}) {
    for (int64_t visits = 1; visits <= 4; ++visits) {
      BOOST_TEST_CONTEXT("order " << int(order) << ", visits " << visits) {
        ModelConfig config = tiny_config(visits, order);
        config.shared_expert_hidden_size = visits % 2 == 0 ? 10 : 0;
        check_equal(config);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(any_residual_scale_folds) {
  ModelConfig config = tiny_config(3);
  config.loop.scale = 0.7;
  config.tie_embeddings = true;
  check_equal(config);
}

BOOST_AUTO_TEST_CASE(one_visit_with_scale_1_is_the_baseline_bit_for_bit) {  // CASE 42
  ModelConfig looped = tiny_config(1);
  ModelConfig baseline = looped;
  baseline.loop = LoopConfig{};
  const auto a = make_model(looped, DType::f32), b = make_model(baseline, DType::f32);
  const ModelInput input = random_batch(3, 8, 7, true).input();
  BOOST_CHECK_EQUAL(run_backward(*a, input), run_backward(*b, input));
  check_named_same_bits(gradients_of(*a), gradients_of(*b));
  looped.loop.scale = 0.5;  // and another scale is another model
  const auto c = make_model(looped, DType::f32);
  BOOST_CHECK_NE(run_backward(*c, input), run_backward(*b, input));
}

BOOST_AUTO_TEST_CASE(selection_biases_follow_their_step) {
  const ModelConfig config = tiny_config(2);
  auto looped = make_model(config, DType::f64);
  looped->enable_expert_bias();
  for (int64_t step = 0; step < looped->plan().executed_depth(); ++step)
    looped->expert_bias(step).copy_(random_tensor({4}, DType::f64, uint64_t(step) + 1));
  auto plain = make_model(unrolled_config(config), DType::f64);
  copy_unrolled(*looped, *plain);
  const NoGrad no_grad;
  const ModelInput input = random_batch(2, 8, 5).input();
  const Tensor a = looped->hidden(input).data(), b = plain->hidden(input).data();
  check_close(a, b, 0, 1e-12 * largest(b));
}

BOOST_AUTO_TEST_CASE(refuses_shared_keys_and_values) {
  const ModelConfig config = tiny_config(2, LoopOrder::span, LoopKv::first);
  BOOST_CHECK_EXCEPTION(unrolled_config(config), ConfigError, says("loop.kv = first"));
  BOOST_CHECK_NO_THROW(unrolled_config(tiny_config(1, LoopOrder::span, LoopKv::first)));
}

BOOST_AUTO_TEST_CASE(refuses_a_plain_model_of_other_shape) {
  const auto looped = make_model(tiny_config(2), DType::f32);
  const auto shallow = make_model(tiny_config(1), DType::f32);
  BOOST_CHECK_EXCEPTION(copy_unrolled(*looped, *shallow), ConfigError, says("6 layers"));
  ModelConfig wide = unrolled_config(tiny_config(2));
  wide.expert_hidden_size = 8;
  const auto other = make_model(wide, DType::f32);
  BOOST_CHECK_EXCEPTION(copy_unrolled(*looped, *other), ConfigError, says("gate_proj"));
  const auto doubles_model = make_model(unrolled_config(tiny_config(2)), DType::f64);
  BOOST_CHECK_EXCEPTION(copy_unrolled(*looped, *doubles_model), ConfigError, says("f32"));
}

BOOST_AUTO_TEST_SUITE_END()
