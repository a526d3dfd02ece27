// Gradient accumulation: a step must not depend on how its sequences are cut into micro-batches.
#include <numeric>

#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

const dist::World& alone() {
  static const dist::World world = dist::World::single();
  return world;
}

StepResult step_on(const std::vector<ModelInput>& micro_batches, const BalanceConfig& balance,
                   DType dtype = DType::f64) {
  const auto model = make_model(tiny_config(2), dtype);
  return descend(*model, alone(), micro_batches, balance);
}

void check_same_metrics(const StepMetrics& a, const StepMetrics& b, double rtol) {
  BOOST_CHECK_CLOSE_FRACTION(a.loss, b.loss, rtol);
  BOOST_CHECK_CLOSE_FRACTION(a.aux_loss, b.aux_loss, rtol);
  BOOST_CHECK_CLOSE_FRACTION(a.z_loss, b.z_loss, rtol);
  BOOST_CHECK_CLOSE_FRACTION(a.grad_norm, b.grad_norm, rtol);
  BOOST_CHECK_EQUAL(a.targets, b.targets);
}

constexpr BalanceConfig kOff{.balance = Balance::none, .aux_loss_coef = 0, .z_loss_coef = 0};
constexpr BalanceConfig kAuxOnly{.aux_loss_coef = 1, .z_loss_coef = 0};
constexpr BalanceConfig kZOnly{.balance = Balance::none, .aux_loss_coef = 0, .z_loss_coef = 1};
constexpr BalanceConfig kAll{.aux_loss_coef = 0.5, .z_loss_coef = 0.1};

Batch equal_counts() { return random_batch(8, 8, 21); }
Batch different_counts() { return random_batch(8, 8, 22, true); }

NamedTensors gradients_by(int64_t micro_batch, const Batch& batch, MoeTransformer& model) {
  ShardedOptimizer optimizer(model.parameters(), alone(), descent());
  const std::vector<ModelInput> inputs = batch.micro_batches(0, batch.sequences, micro_batch);
  const StepTotals totals = totals_of(inputs);
  for (const ModelInput& input : inputs) backward(training_loss(model, input, kAll, totals));
  return gradients_of(model);
}

/// By how much each gradient changes, in f64, when every weight is off by about the roundoff of
/// f32: what a perturbation of that size comes to behind all norms, softmaxes and sums that cancel.
std::map<std::string, double> changes_by_roundoff(const Batch& batch) {
  const auto exact_model = make_model(tiny_config(2), DType::f64);
  const NamedTensors exact = gradients_by(8, batch, *exact_model);
  std::map<std::string, double> changes;
  uint64_t seed = 0;
  for (int draw = 0; draw < 4; ++draw) {
    const auto model = make_model(tiny_config(2), DType::f64);
    for (const Parameter* p : model->parameters().all()) {
      const Tensor& w = p->value.data();
      add_scaled_(w, mul(w, random_tensor(w.shape(), DType::f64, ++seed)),
                  unit_roundoff(DType::f32));
    }
    for (const auto& [name, gradient] : gradients_by(8, batch, *model))
      changes[name] = std::max(changes[name], largest(add_scaled(gradient, exact.at(name), -1)));
  }
  return changes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(accumulation)

BOOST_AUTO_TEST_CASE(eight_micro_batches_of_one_equal_one_of_eight) {  // CASES 1, 3, 7
  const Batch batch = different_counts();
  const StepResult whole = step_on({batch.input()}, kAll);
  for (const int64_t size : {1, 2, 4}) {
    BOOST_TEST_CONTEXT("micro-batches of " << size) {
      const StepResult cut = step_on(batch.micro_batches(0, 8, size), kAll);
      check_same_metrics(cut.metrics, whole.metrics, 1e-12);
      check_named_close(cut.gradients, whole.gradients, 1e-10);
    }
  }
}

BOOST_AUTO_TEST_CASE(in_f32_they_agree_to_rounding) {
  const Batch batch = different_counts();
  const auto gradients = [&](int64_t micro_batch) {
    return gradients_by(micro_batch, batch, *make_model(tiny_config(2), DType::f32));
  };
  const NamedTensors one = gradients(1), all = gradients(8);
  for (const auto& [name, change] : changes_by_roundoff(batch)) {
    BOOST_TEST_CONTEXT(name) {
      // A sum of 16 products, the usual one here, may be off by 16 u times a product
      // (tolerance::sum); weights off by u move it by sqrt(16) u, a quarter of that. Both runs are
      // rounded, and the bound is doubled: 4 * 2 * 2.
      const double bound = 16 * change;
      check_close(one.at(name), all.at(name), 0, bound);
      // Below one rounding to bf16, and no choice of experts hangs on the last bits.
      BOOST_CHECK_LT(bound, unit_roundoff(DType::bf16) * largest(all.at(name)));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_loss_is_the_mean_over_all_targets) {  // CASES 1, 15
  const Batch batch = different_counts();
  const auto model = make_model(tiny_config(2), DType::f64);
  const auto losses = doubles(model->token_losses(batch.input()));
  const double targets = double(count_targets(Tensor::from(batch.targets)));
  const double mean = std::accumulate(losses.begin(), losses.end(), 0.0) / targets;
  double mean_of_means = 0;
  for (int64_t b = 0; b < 8; ++b) {
    const auto one = doubles(model->token_losses(batch.input(b, b + 1)));
    mean_of_means += std::accumulate(one.begin(), one.end(), 0.0) /
                     double(count_targets(batch.input(b, b + 1).targets)) / 8;
  }
  BOOST_CHECK_GT(std::abs(mean - mean_of_means), 1e-4);
  const StepResult step = step_on(batch.micro_batches(0, 8, 1), kOff);
  BOOST_CHECK_CLOSE_FRACTION(step.metrics.loss, mean, 1e-12);
  BOOST_CHECK_EQUAL(step.metrics.targets, targets);
}

BOOST_AUTO_TEST_CASE(each_loss_term_alone_is_independent_of_the_split) {  // CASE 3
  const Batch batch = equal_counts();
  for (const BalanceConfig& balance : {kOff, kAuxOnly, kZOnly}) {
    const StepResult whole = step_on({batch.input()}, balance);
    for (const int64_t size : {1, 2, 4}) {
      check_named_close(step_on(batch.micro_batches(0, 8, size), balance).gradients,
                        whole.gradients, 1e-10);
    }
  }
}

BOOST_AUTO_TEST_CASE(repeating_a_micro_batch_does_not_strengthen_any_term) {  // CASE 6
  const Batch batch = random_batch(2, 8, 23);
  for (const AuxScope scope : {AuxScope::sequence, AuxScope::batch}) {
    BalanceConfig strong = kAuxOnly;
    strong.aux_scope = scope;
    strong.aux_loss_coef = 100;
    strong.z_loss_coef = 10;
    const StepResult once = step_on({batch.input()}, strong);
    for (const size_t times : {2, 4}) {
      const StepResult more = step_on(std::vector<ModelInput>(times, batch.input()), strong);
      check_same_metrics({.loss = more.metrics.loss,
                          .aux_loss = more.metrics.aux_loss,
                          .z_loss = more.metrics.z_loss,
                          .grad_norm = more.metrics.grad_norm,
                          .targets = once.metrics.targets},
                         once.metrics, 1e-12);
      check_named_close(more.gradients, once.gradients, 1e-9);
    }
  }
}

BOOST_AUTO_TEST_CASE(batch_scope_is_defined_per_micro_batch) {  // CASE 7
  const Batch batch = random_batch(4, 8, 24);
  BalanceConfig balance = kAuxOnly;
  balance.aux_scope = AuxScope::batch;
  const double whole = step_on({batch.input()}, balance).metrics.aux_loss;
  const double first = step_on({batch.input(0, 2)}, balance).metrics.aux_loss;
  const double second = step_on({batch.input(2, 4)}, balance).metrics.aux_loss;
  const double cut = step_on(batch.micro_batches(0, 4, 2), balance).metrics.aux_loss;
  BOOST_CHECK_CLOSE_FRACTION(cut, (first + second) / 2, 1e-12);
  BOOST_CHECK_GT(std::abs(cut - whole), 1e-4);
}

BOOST_AUTO_TEST_CASE(a_micro_batch_without_targets_adds_no_cross_entropy) {  // CASE 5
  Batch batch = equal_counts();
  std::fill(batch.targets.begin() + 4 * 8, batch.targets.end(), -1);
  const StepResult cut = step_on(batch.micro_batches(0, 8, 4), kAll);
  const StepResult whole = step_on({batch.input()}, kAll);
  check_same_metrics(cut.metrics, whole.metrics, 1e-12);
  check_named_close(cut.gradients, whole.gradients, 1e-10);
}

BOOST_AUTO_TEST_CASE(an_empty_micro_batch_changes_nothing) {
  const Batch batch = random_batch(2, 8, 25);
  for (const Recompute recompute : {Recompute::none, Recompute::moe, Recompute::block}) {
    const auto run = [&](const std::vector<ModelInput>& inputs) {
      const auto model = make_model(tiny_config(2), DType::f64);
      model->set_recompute(recompute);
      return descend(*model, alone(), inputs, kAll);
    };
    const StepResult cut = run({batch.input(), batch.input(0, 0)});
    const StepResult whole = run({batch.input()});
    check_same_metrics(cut.metrics, whole.metrics, 1e-12);
    check_named_close(cut.gradients, whole.gradients, 1e-10);
  }
}

BOOST_AUTO_TEST_CASE(a_step_without_any_target_is_skipped_and_changes_nothing) {  // CASE 5
  Batch batch = equal_counts();
  std::fill(batch.targets.begin(), batch.targets.end(), -1);
  const auto model = make_model(tiny_config(2), DType::f32);
  ShardedOptimizer optimizer(model->parameters(), alone(), {});
  const NamedTensors before = values_of(*model);
  const StepMetrics metrics = train_step(*model, optimizer, alone(), batch.micro_batches(0, 8, 2),
                                         {.lr = 0.1, .balance = {}});
  BOOST_CHECK(metrics.skipped);
  BOOST_CHECK_EQUAL(metrics.loss, 0);
  BOOST_CHECK_EQUAL(optimizer.steps(), 0);
  check_named_same_bits(values_of(*model), before);
}

BOOST_AUTO_TEST_SUITE_END()
