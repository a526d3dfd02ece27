// Gradients of the whole model against central differences in double precision.
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

double loss_of(MoeTransformer& model, const ModelInput& input, const BalanceConfig& balance) {
  const NoGrad no_grad;
  model.load().clear();
  return training_loss(model, input, balance, totals_of({input})).item();
}

std::vector<std::vector<double>> loads(MoeTransformer& model) {
  std::vector<std::vector<double>> result;
  for (int64_t i = 0; i < model.load().steps(); ++i) result.push_back(model.load().counts(i));
  return result;
}

/// Checks `samples` elements of every piece of every parameter.
void check_gradients(const ModelConfig& config, AuxScope scope, int64_t samples) {
  const auto model = make_model(config, DType::f64);
  const BalanceConfig balance{.aux_scope = scope, .aux_loss_coef = 0.3, .z_loss_coef = 0.1};
  const ModelInput input = random_batch(2, 8, 11, true).input();
  model->load().clear();
  run_backward(*model, input, balance);
  const auto routed = loads(*model);
  const double step = 1e-5;
  for (const Parameter* parameter : model->parameters().all()) {
    for (const TensorPiece& piece : parameter->pieces) {
      const Tensor value = Parameter::view_piece(parameter->value.data(), piece);
      const Tensor gradient = Parameter::view_piece(parameter->value.grad(), piece);
      const Random pick(3, piece.name);
      for (int64_t s = 0; s < samples; ++s) {
        const auto at = int64_t(pick.below(uint64_t(s), uint64_t(value.numel())));
        double& x = value.data<double>()[at];
        const double before = x;
        x = before + step;
        const double up = loss_of(*model, input, balance);
        BOOST_REQUIRE_MESSAGE(loads(*model) == routed, "routing is too close to a tie");
        x = before - step;
        const double down = loss_of(*model, input, balance);
        BOOST_REQUIRE_MESSAGE(loads(*model) == routed, "routing is too close to a tie");
        x = before;
        const double numeric = (up - down) / (2 * step);
        const double analytic = gradient.data<double>()[at];
        // The loss is about 10: rounding leaves 1e-15 / 1e-5, the step's cubic term about as much.
        BOOST_CHECK_MESSAGE(
            std::abs(numeric - analytic) <= 1e-8 + 1e-6 * std::abs(analytic),
            piece.name << "[" << at << "]: analytic " << analytic << ", numeric " << numeric);
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(finite_differences)

BOOST_AUTO_TEST_CASE(looped_model_with_every_loss_term) {  // CASE 34
  check_gradients(tiny_config(2), AuxScope::sequence, 3);
}

BOOST_AUTO_TEST_CASE(shared_expert_tied_head_and_layer_order) {
  ModelConfig config = tiny_config(3, LoopOrder::layer);
  config.shared_expert_hidden_size = 10;
  config.tie_embeddings = true;
  config.norm_topk = false;
  check_gradients(config, AuxScope::batch, 2);
}

BOOST_AUTO_TEST_CASE(keys_and_values_of_the_first_visit) {
  ModelConfig config = tiny_config(3, LoopOrder::span, LoopKv::first);
  check_gradients(config, AuxScope::sequence, 2);
}

BOOST_AUTO_TEST_CASE(norm_of_whole_projections_with_clipping) {
  ModelConfig config = tiny_config(2);
  config.qk_norm = QkNorm::projection;
  config.clip_qkv = 0.7;
  check_gradients(config, AuxScope::sequence, 3);
}

BOOST_AUTO_TEST_SUITE_END()
