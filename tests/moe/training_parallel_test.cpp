// Any split over ranks gives what one rank gives: gradients of a step and losses of a training.
#include "moe/generate.h"
#include "moe/unroll.h"
#include "tests/moe/ranks.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

using Split = std::vector<ModelInput> (*)(const Batch&, const dist::World&);

std::vector<ModelInput> in_one_pass(const Batch& batch, const dist::World& world) {
  return part_of(batch, world);
}
std::vector<ModelInput> one_by_one(const Batch& batch, const dist::World& world) {
  return part_of(batch, world, 1);
}
/// Rank 0 takes every sequence; the other ranks run the same passes on nothing.
std::vector<ModelInput> all_on_rank_0(const Batch& batch, const dist::World& world) {
  return {world.world().rank() == 0 ? batch.input() : batch.input(0, 0)};
}

struct Setup {
  const char* name;
  ModelConfig config = tiny_config(2);
  int64_t seq_len = 8;
  bool documents = false;
  std::vector<double> forced = {};  // selection bias
  BalanceConfig balance = {.aux_loss_coef = 0.1, .z_loss_coef = 0.01};
  Recompute recompute = Recompute::none;
  Split split = in_one_pass;
  bool last_half_without_targets = false;
  bool train = false;  // also over 30 steps
};

std::vector<Setup> setups() {
  std::vector<Setup> all;
  all.push_back({.name = "plain", .train = true});
  all.push_back(
      {.name = "documents: target counts differ by rank", .documents = true, .train = true});
  all.push_back({.name = "micro-batches", .documents = true, .split = one_by_one});
  all.push_back(
      {.name = "experts 2 and 3 receive no token", .forced = {9, 8, 0, 0}, .train = true});
  all.push_back({.name = "expert 3 receives everything", .forced = {0, 0, 0, 9}});
  all.back().config.top_k = 1;
  all.back().config.norm_topk = false;
  all.push_back({.name = "fewer tokens than experts", .seq_len = 1, .train = true});
  all.back().config.num_experts = 16;
  all.push_back({.name = "half of the ranks without targets",
                 .documents = true,
                 .last_half_without_targets = true,
                 .train = true});
  all.push_back({.name = "all tokens on rank 0", .documents = true, .split = all_on_rank_0});
  all.push_back({.name = "all tokens on rank 0, recomputed",
                 .recompute = Recompute::block,
                 .split = all_on_rank_0});
  all.push_back({.name = "aux_scope = batch",
                 .balance = {.aux_scope = AuxScope::batch, .aux_loss_coef = 0.5}});
  all.push_back({.name = "aux_scope = batch, recomputed, all tokens on rank 0",
                 .balance = {.aux_scope = AuxScope::batch, .aux_loss_coef = 0.5},
                 .recompute = Recompute::block,
                 .split = all_on_rank_0});
  all.push_back({.name = "recomputed experts, kv = first, shared expert",
                 .config = tiny_config(3, LoopOrder::layer, LoopKv::first),
                 .recompute = Recompute::moe,
                 .train = true});
  all.back().config.shared_expert_hidden_size = 10;
  all.back().config.tie_embeddings = true;
  return all;
}

Batch batch_of(const Setup& setup, uint64_t seed) {
  Batch batch = random_batch(8, setup.seq_len, seed, setup.documents);
  if (setup.last_half_without_targets)
    std::fill(batch.targets.begin() + 4 * setup.seq_len, batch.targets.end(), -1);
  return batch;
}

std::unique_ptr<MoeTransformer> model_of(const Setup& setup, DType dtype,
                                         const dist::World& world) {
  auto model = make_model(setup.config, dtype, world);
  model->set_recompute(setup.recompute);
  if (!setup.forced.empty()) force_experts(*model, setup.forced);
  return model;
}

StepResult step_of(const Setup& setup, const dist::World& world) {
  const auto model = model_of(setup, DType::f64, world);
  return descend(*model, world, setup.split(batch_of(setup, 61), world), setup.balance);
}

struct Training {
  std::vector<StepMetrics> steps;
  std::vector<std::vector<double>> loads;  // of the last step
  NamedTensors values;
};

Training train(const Setup& setup, const dist::World& world) {
  const auto model = model_of(setup, DType::f32, world);
  ShardedOptimizer optimizer(model->parameters(), world, {}, true, 4096);
  Training training;
  for (uint64_t s = 0; s < 30; ++s) {
    training.steps.push_back(train_step(*model, optimizer, world,
                                        setup.split(batch_of(setup, s % 3), world),
                                        {.lr = 3e-3, .grad_clip = 0.5, .balance = setup.balance}));
  }
  for (int64_t i = 0; i < model->load().steps(); ++i)
    training.loads.push_back(model->load().counts(i));
  training.values = values_of(*model);
  return training;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parallel_equals_serial)

BOOST_AUTO_TEST_CASE(gradients_of_a_step_in_f64) {  // CASES 2, 5, 7, 23, 28
  for (const Setup& setup : setups()) {
    const StepResult serial = step_of(setup, dist::World::single());
    for (const int expert_parallel : expert_parallel_sizes()) {
      BOOST_TEST_CONTEXT(setup.name << ", expert_parallel " << expert_parallel) {
        const dist::World world(expert_parallel);
        const StepResult parallel = step_of(setup, world);
        BOOST_CHECK_CLOSE_FRACTION(parallel.metrics.loss, serial.metrics.loss, 1e-12);
        BOOST_CHECK_CLOSE_FRACTION(parallel.metrics.z_loss, serial.metrics.z_loss, 1e-12);
        BOOST_CHECK_CLOSE_FRACTION(parallel.metrics.grad_norm, serial.metrics.grad_norm, 1e-12);
        BOOST_CHECK_EQUAL(parallel.metrics.targets, serial.metrics.targets);
        // With aux_scope = batch the pass of all ranks is the serial pass here, in every setup.
        BOOST_CHECK_CLOSE_FRACTION(parallel.metrics.aux_loss, serial.metrics.aux_loss, 1e-12);
        check_named_close(parallel.gradients, serial.gradients, 1e-10);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(thirty_steps_of_adam_with_clipping) {
  for (const Setup& setup : setups()) {
    if (!setup.train) continue;
    const Training serial = train(setup, dist::World::single());
    BOOST_CHECK_LT(serial.steps.back().loss, serial.steps.front().loss);
    BOOST_CHECK_GT(serial.steps.front().grad_norm, 0.5);  // clipping acts
    for (const int expert_parallel : expert_parallel_sizes()) {
      BOOST_TEST_CONTEXT(setup.name << ", expert_parallel " << expert_parallel) {
        const dist::World world(expert_parallel);
        const Training parallel = train(setup, world);
        for (size_t s = 0; s < 30; ++s) {
          BOOST_CHECK_CLOSE_FRACTION(parallel.steps[s].loss, serial.steps[s].loss,
                                     s < 5 ? 1e-6 : 1e-4);
          check_same_on_all_ranks(parallel.steps[s].loss, world);  // CASE 15
          check_same_on_all_ranks(parallel.steps[s].grad_norm, world);
        }
        for (size_t i = 0; i < serial.loads.size(); ++i) {
          double slots = 0, moved = 0;
          for (size_t e = 0; e < serial.loads[i].size(); ++e) {
            slots += serial.loads[i][e];
            moved += std::abs(serial.loads[i][e] - parallel.loads[i][e]);
          }
          BOOST_CHECK_EQUAL(slots, double(8 * setup.seq_len * setup.config.top_k));
          BOOST_CHECK_LE(moved, 4);  // rounding may flip a close choice
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(selection_bias_follows_the_load_of_all_ranks) {
  const auto run = [](const dist::World& world) {
    const auto model = make_model(tiny_config(2), DType::f32, world);
    model->enable_expert_bias();
    ShardedOptimizer optimizer(model->parameters(), world, {});
    const BalanceConfig balance{.balance = Balance::bias, .bias_update_rate = 0.125};
    for (uint64_t s = 0; s < 3; ++s)
      train_step(*model, optimizer, world, part_of(random_batch(8, 8, s, true), world),
                 {.lr = 1e-3, .balance = balance});
    std::vector<std::vector<float>> biases;
    for (int64_t i = 0; i < 6; ++i) biases.push_back(model->expert_bias(i).to_vector<float>());
    return biases;
  };
  const auto serial = run(dist::World::single());
  BOOST_CHECK((serial[1] != std::vector<float>(4, 0.0f)));
  for (const int expert_parallel : expert_parallel_sizes())
    BOOST_CHECK(run(dist::World(expert_parallel)) == serial);
}

BOOST_AUTO_TEST_CASE(no_target_on_any_rank_skips_the_step_everywhere) {  // CASE 5
  Batch batch = random_batch(8, 8, 62);
  std::fill(batch.targets.begin(), batch.targets.end(), -1);
  for (const int expert_parallel : expert_parallel_sizes()) {
    const dist::World world(expert_parallel);
    const auto model = make_model(tiny_config(2), DType::f32, world);
    ShardedOptimizer optimizer(model->parameters(), world, {});
    const NamedTensors before = values_of(*model);
    const StepMetrics metrics =
        train_step(*model, optimizer, world, part_of(batch, world), {.lr = 0.1, .balance = {}});
    BOOST_CHECK(metrics.skipped);
    BOOST_CHECK_EQUAL(metrics.loss, 0);
    check_named_same_bits(values_of(*model), before);
  }
}

BOOST_AUTO_TEST_CASE(evaluation_generation_and_unrolling_with_experts_on_several_ranks) {
  const Batch batch = random_batch(4, 8, 64, true);
  const std::vector<std::vector<int32_t>> prompts = {{1, 2, 3}, {4}};
  const GenerateConfig greedy{.max_new_tokens = 5, .stop_id = -1, .sampling = {}};
  const auto serial = make_model(tiny_config(2), DType::f64);
  const Tensor losses = serial->token_losses(batch.input());
  const auto continued = generate(*serial, prompts, greedy);
  for (const int expert_parallel : expert_parallel_sizes()) {
    const dist::World world(expert_parallel);
    const auto model = make_model(tiny_config(2), DType::f64, world);
    check_close(model->token_losses(batch.input()), losses, 1e-12, 1e-12);
    BOOST_CHECK(generate(*model, prompts, greedy) == continued);
    const auto plain = make_model(unrolled_config(tiny_config(2)), DType::f64, world, 99);
    copy_unrolled(*model, *plain);
    check_close(plain->token_losses(batch.input()), losses, 1e-12, 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(one_expert_needs_no_router_choice) {  // CASE 28, E 1
  ModelConfig config = tiny_config(2);
  config.num_experts = config.top_k = 1;
  const Batch batch = random_batch(8, 8, 63, true);
  const auto run = [&](const dist::World& world) {
    const auto model = make_model(config, DType::f64, world);
    return descend(*model, world, part_of(batch, world), {.z_loss_coef = 0});
  };
  const StepResult serial = run(dist::World::single()), parallel = run(dist::World(1));
  check_named_close(parallel.gradients, serial.gradients, 1e-10);
}

BOOST_AUTO_TEST_SUITE_END()
