// Balance losses, selection bias and load statistics on numbers that can be checked by hand.
#include "autograd/routing.h"
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

/// Routing of given probabilities with the chosen experts of each token.
Routing routing_of(const std::vector<double>& probs, const std::vector<int32_t>& chosen,
                   int64_t tokens) {
  const int64_t E = int64_t(probs.size()) / tokens, K = int64_t(chosen.size()) / tokens;
  const Tensor p = Tensor::from(probs, {tokens, E});
  return {Variable(p), Variable(p, true), Variable(Tensor::zeros({tokens, K}, p.options())),
          Tensor::from(chosen, {tokens, K})};
}

double aux_of(const Routing& routing, double share, AuxScope scope = AuxScope::sequence,
              int64_t batch = 1) {
  const int64_t tokens = routing.probs.dim(0);
  std::vector<int64_t> counts(size_t(routing.probs.dim(1)), 0);
  for (const int32_t e : routing.indices.to_vector<int32_t>()) ++counts[size_t(e)];
  return balance_terms(routing, counts, batch, share, {.aux_scope = scope},
                       {double(tokens), double(batch), double(tokens), 1}, dist::Group())
      .aux.item();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(balance)

BOOST_AUTO_TEST_CASE(visits_are_averaged_neither_summed_nor_pooled) {  // CASE 8
  const Routing first = routing_of({1, 0, 1, 0}, {0, 0}, 2);
  const Routing second = routing_of({0, 1, 0, 1}, {1, 1}, 2);
  BOOST_CHECK_EQUAL(aux_of(first, 1), 2.0);
  BOOST_CHECK_EQUAL(aux_of(second, 1), 2.0);
  BOOST_CHECK_EQUAL(aux_of(first, 0.5) + aux_of(second, 0.5), 2.0);
}

BOOST_AUTO_TEST_CASE(the_model_averages_visits_and_layers) {  // CASES 8, 9
  // Zero router weights: uniform probabilities, so aux is E * sum f_i / E = 1 for every choice, and
  // logits 0: z is log(E)^2; whatever the number of visits.
  for (const int64_t visits : {1, 2, 3}) {
    const auto model = make_model(tiny_config(visits), DType::f64);
    for (const Parameter* p : model->parameters().all())
      if (p->name.ends_with("mlp.gate.weight")) p->value.data().zero_();
    const ModelInput input = random_batch(2, 8, 31).input();
    for (const AuxScope scope : {AuxScope::sequence, AuxScope::batch}) {
      const PassLoss loss = model->loss(input, {.aux_scope = scope}, totals_of({input}));
      BOOST_CHECK_CLOSE_FRACTION(loss.aux.item(), 1.0, 1e-12);
      BOOST_CHECK_CLOSE_FRACTION(loss.z.item(), std::log(4.0) * std::log(4.0), 1e-12);
    }
    // CASE 17: ties go to the lowest index.
    model->load().clear();
    model->hidden(input);
    for (int64_t step = 0; step < model->plan().executed_depth(); ++step)
      BOOST_CHECK((model->load().counts(step) == std::vector<double>{16, 16, 0, 0}));
  }
}

BOOST_AUTO_TEST_CASE(even_routing_gives_1_for_any_top_k) {  // CASE 10
  const std::vector<double> uniform(16, 0.25);
  BOOST_CHECK_EQUAL(aux_of(routing_of(uniform, {0, 1, 2, 3, 0, 1, 2, 3}, 4), 1), 1.0);
  BOOST_CHECK_EQUAL(aux_of(routing_of(uniform, {0, 1, 2, 3}, 4), 1), 1.0);
}

BOOST_AUTO_TEST_CASE(softmax_is_applied_once) {  // CASE 11
  const Variable logits(Tensor::from(std::vector<double>{2, 0}, {1, 2}), true);
  Routing routing;
  routing.logits = logits;
  routing.probs = softmax(logits);
  routing.indices = Tensor::from(std::vector<int32_t>{0}, {1, 1});
  const double p = 1 / (1 + std::exp(-2.0));
  BOOST_CHECK_CLOSE_FRACTION(2 * p, 1.7616, 1e-4);
  const BalanceTerms terms = balance_terms(routing, {1, 0}, 1, 1, {}, {1, 1, 1, 1}, dist::Group());
  BOOST_CHECK_CLOSE_FRACTION(terms.aux.item(), 2 * p, 1e-12);
  backward(terms.aux);
  BOOST_CHECK_CLOSE_FRACTION(logits.grad().data<double>()[0], 2 * p * (1 - p), 1e-12);
}

BOOST_AUTO_TEST_CASE(sequence_scope_sees_imbalance_that_batch_scope_averages_away) {
  const Routing opposite = routing_of({1, 0, 1, 0, 0, 1, 0, 1}, {0, 0, 1, 1}, 4);
  BOOST_CHECK_EQUAL(aux_of(opposite, 1, AuxScope::sequence, 2), 2.0);
  BOOST_CHECK_EQUAL(aux_of(opposite, 1, AuxScope::batch, 2), 1.0);
}

BOOST_AUTO_TEST_CASE(update_bias_raises_underloaded_and_lowers_overloaded_experts) {
  const Tensor bias = Tensor::from(std::vector<float>{0.5f, 0, 0, -0.25f});
  update_bias(bias, {10, 0, 4, 2}, 0.125);  // mean 4
  BOOST_CHECK((bias.to_vector<float>() == std::vector<float>{0.375f, 0.125f, 0, -0.125f}));
}

BOOST_AUTO_TEST_CASE(a_bias_selects_experts_without_entering_their_weights) {
  const Tensor x = random_tensor({5, 16}, DType::f64);
  ParameterStore store(DType::f64, {});
  const Router router(store, "gate", 16, 4, 2, false, 0.5);
  store.initialize(1);
  const Routing free = router(Variable(x));
  const Routing biased = router(Variable(x), Tensor::from(std::vector<double>{0, 0, 9, 8}));
  check_same_bits(free.probs.data(), biased.probs.data());
  const double* p = biased.probs.data().data<double>();
  for (int64_t t = 0; t < 5; ++t) {
    BOOST_CHECK_EQUAL(biased.indices.data<int32_t>()[2 * t], 2);
    BOOST_CHECK_EQUAL(biased.indices.data<int32_t>()[2 * t + 1], 3);
    BOOST_CHECK_EQUAL(biased.weights.data().data<double>()[2 * t], p[4 * t + 2]);
    BOOST_CHECK_EQUAL(biased.weights.data().data<double>()[2 * t + 1], p[4 * t + 3]);
  }
}

BOOST_AUTO_TEST_CASE(a_step_moves_the_bias_of_every_visit_by_its_own_load) {
  const auto model = make_model(tiny_config(2), DType::f32);
  force_experts(*model, {3, 3, 0, 0});  // experts 0 and 1 get everything
  const dist::World world = dist::World::single();
  ShardedOptimizer optimizer(model->parameters(), world, {});
  train_step(*model, optimizer, world, {random_batch(2, 8, 32).input()},
             {.lr = 0, .balance = {.balance = Balance::bias, .bias_update_rate = 0.5}});
  for (int64_t step = 0; step < model->plan().executed_depth(); ++step) {
    BOOST_CHECK((model->load().counts(step) == std::vector<double>{16, 16, 0, 0}));
    BOOST_CHECK_EQUAL(model->load().max_over_mean(step), 2.0);
    BOOST_CHECK((model->expert_bias(step).to_vector<float>() ==
                 std::vector<float>{2.5f, 2.5f, 0.5f, 0.5f}));
  }
}

BOOST_AUTO_TEST_CASE(balance_none_and_bias_leave_the_auxiliary_loss_out) {
  const ModelInput input = random_batch(2, 8, 33).input();
  const auto gradient = [&](Balance balance, double coef) {
    const auto model = make_model(tiny_config(2), DType::f64);
    model->enable_expert_bias();
    return descend(*model, dist::World::single(), {input},
                   {.balance = balance, .aux_loss_coef = coef})
        .gradients;
  };
  const NamedTensors without = gradient(Balance::aux, 0);
  check_named_same_bits(gradient(Balance::none, 5), without);
  check_named_same_bits(gradient(Balance::bias, 5), without);
  const std::string router = "model.layers.1.mlp.gate.weight";
  const Tensor with = gradient(Balance::aux, 5).at(router);
  BOOST_CHECK_GT(largest(add_scaled(with, without.at(router), -1)), 1e-3);
}

BOOST_AUTO_TEST_CASE(renormalised_top_1_leaves_the_router_without_gradient) {  // CASE 19
  const BalanceConfig off{.balance = Balance::none, .aux_loss_coef = 0, .z_loss_coef = 0};
  for (const bool normalize : {true, false}) {
    ModelConfig config = tiny_config(2);
    config.top_k = 1;
    config.norm_topk = normalize;
    const auto model = make_model(config, DType::f64);
    run_backward(*model, random_batch(2, 8, 34).input(), off);
    const double router = largest(gradients_of(*model).at("model.layers.1.mlp.gate.weight"));
    if (normalize) {
      BOOST_CHECK_SMALL(router, 1e-15);
    } else {
      BOOST_CHECK_GT(router, 1e-4);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
