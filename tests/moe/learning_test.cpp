// Training as a whole: a tiny model learns, AdamW treats looped tensors once, runs repeat.
#include "moe/generate.h"
#include "tensor/allocator.h"
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

const dist::World& alone() {
  static const dist::World world = dist::World::single();
  return world;
}

/// Windows over 0 1 2 ... 15 0 1 2 ...
Batch counting(int64_t sequences, int64_t seq_len) {
  Batch batch{sequences, seq_len, {}, {}, {}};
  for (int64_t b = 0; b < sequences; ++b) {
    for (int64_t i = 0; i < seq_len; ++i) {
      batch.tokens.push_back(int32_t((5 * b + i) % 16));
      batch.targets.push_back(int32_t((5 * b + i + 1) % 16));
      batch.starts.push_back(0);
    }
  }
  return batch;
}

std::vector<double> losses_of_steps(MoeTransformer& model, const Batch& batch, int64_t steps,
                                    double lr) {
  ShardedOptimizer optimizer(model.parameters(), alone(), {});
  std::vector<double> losses;
  for (int64_t s = 0; s < steps; ++s)
    losses.push_back(
        train_step(model, optimizer, alone(), {batch.input()}, {.lr = lr, .balance = {}}).loss);
  return losses;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(learning)

BOOST_AUTO_TEST_CASE(a_looped_model_learns_to_count) {  // CASE 83
  for (const DType dtype : {DType::f32, DType::bf16}) {
    BOOST_TEST_CONTEXT(dtype) {
      ModelConfig config = tiny_config(2);
      config.init_std = 0.1;
      const auto model = make_model(config, dtype);
      const auto losses = losses_of_steps(*model, counting(8, 8), 100, 1e-2);
      BOOST_CHECK_CLOSE_FRACTION(losses.front(), std::log(64.0), 0.2);
      BOOST_CHECK_LT(losses.back(), 0.2);
      const auto next =
          generate(*model, {{0}, {7, 8}}, {.max_new_tokens = 5, .stop_id = -1, .sampling = {}});
      BOOST_CHECK((next[0] == std::vector<int32_t>{1, 2, 3, 4, 5}));
      BOOST_CHECK((next[1] == std::vector<int32_t>{9, 10, 11, 12, 13}));
    }
  }
}

BOOST_AUTO_TEST_CASE(runs_with_the_same_number_of_threads_are_bit_equal) {  // CASE 67
  for (const int threads : {1, 2}) {
    const auto run = [&] {
      return with_threads(threads, [] {
        const auto model = make_model(tiny_config(2), DType::f32);
        losses_of_steps(*model, random_batch(8, 8, 41, true), 5, 1e-2);
        return values_of(*model);
      });
    };
    check_named_same_bits(run(), run());
  }
}

BOOST_AUTO_TEST_CASE(fresh_memory_full_of_nan_gives_the_same_bits) {  // CASE 29
  const auto run = [](bool poison) {
    allocator().trim();
    allocator().set_poison(poison);
    const auto model = make_model(tiny_config(2), DType::f32);
    force_experts(*model, {-9, 0, -9, 0});  // experts 0 and 2 are never chosen
    Batch batch = random_batch(2, 8, 42, true);
    losses_of_steps(*model, batch, 3, 1e-2);
    allocator().set_poison(false);
    return values_of(*model);
  };
  check_named_same_bits(run(true), run(false));
}

BOOST_AUTO_TEST_CASE(a_looped_parameter_is_decayed_once_per_step) {  // CASES 40, 71
  const auto model = make_model(tiny_config(3), DType::f32);
  ShardedOptimizer optimizer(model->parameters(), alone(),
                             {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
  const NamedTensors before = values_of(*model);
  optimizer.zero_grad();
  BOOST_CHECK_EQUAL(optimizer.reduce_gradients(), 0);
  optimizer.step(1.0, 1.0);
  BOOST_CHECK_EQUAL(optimizer.steps(), 1);
  BOOST_CHECK_EQUAL(optimizer.state_bytes(), 2 * 4 * model->parameters().numel());
  for (const auto& [name, value] : values_of(*model)) {
    const bool kept =
        name.find("norm") != std::string::npos || name == "model.embed_tokens.weight";
    BOOST_TEST_CONTEXT(name) {
      check_close(value, scale(before.at(name), kept ? 1.0 : 0.9), 1e-6, 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_skips_the_step) {  // CASE 27, one rank
  const auto model = make_model(tiny_config(2), DType::f32);
  ShardedOptimizer optimizer(model->parameters(), alone(), {});
  const ModelInput input = random_batch(2, 8, 43).input();
  train_step(*model, optimizer, alone(), {input}, {.lr = 1e-2, .balance = {}});
  model->parameters().all()[0]->value.data().fill_(kInfinity);  // the embedding
  const NamedTensors before = values_of(*model);
  const StepMetrics metrics =
      train_step(*model, optimizer, alone(), {input}, {.lr = 1e-2, .balance = {}});
  BOOST_CHECK(metrics.skipped);
  BOOST_CHECK_EQUAL(optimizer.steps(), 1);
  check_named_same_bits(values_of(*model), before);
}

BOOST_AUTO_TEST_SUITE_END()
