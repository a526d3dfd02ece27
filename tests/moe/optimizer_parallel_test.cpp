// The sharded optimizer over ranks: what is summed over whom, norms, skipped steps, initial values.
#include <set>

#include "moe/sharded_optimizer.h"
#include "tests/moe/moments.h"
#include "tests/moe/ranks.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

/// A replicated parameter of two elements and an expert of one on each rank.
struct Small {
  explicit Small(const dist::World& world) {
    dense = &store.add({.name = "dense", .value = {}, .pieces = {}}, {2});
    const std::string name = "expert" + std::to_string(world.expert_parallel().rank());
    expert = &store.add({.name = name, .value = {}, .expert = true, .pieces = {}}, {1});
  }
  ParameterStore store{DType::f32, {}};
  Parameter* dense;
  Parameter* expert;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(sharded_optimizer)

BOOST_AUTO_TEST_CASE(expert_gradients_are_summed_over_tokens_not_over_group_sizes) {  // CASE 23
  if (number_of_ranks() != 2) return;
  // One token on each rank, both for expert 0; gradients of one weight 1 and 3, over 2 targets.
  for (const int expert_parallel : {1, 2}) {
    const dist::World world(expert_parallel);
    const int rank = world.world().rank();
    Small model(world);
    ShardedOptimizer optimizer(model.store, world, descent());
    optimizer.zero_grad();
    const double own = rank == 0 ? 1.0 / 2 : 3.0 / 2;
    // Without expert parallelism each rank has its token's share, else expert 0's rank has both.
    model.expert->value.grad().fill_(expert_parallel == 1 ? own : rank == 0 ? 2.0 : 0.0);
    BOOST_CHECK_EQUAL(optimizer.reduce_gradients(), 2.0);
    optimizer.step(kHuge, 1.0);
    const bool holds_expert_0 = expert_parallel == 1 || rank == 0;
    BOOST_CHECK_CLOSE_FRACTION(model.expert->value.data().item(), holds_expert_0 ? -2.0 : 0.0,
                               1e-6);
  }
}

BOOST_AUTO_TEST_CASE(the_norm_counts_every_element_once) {  // CASE 25
  const int ranks = number_of_ranks();
  const dist::World world(ranks);
  Small model(world);
  ShardedOptimizer optimizer(model.store, world, descent());
  optimizer.zero_grad();
  model.dense->value.grad().copy_(Tensor::from(std::vector<float>{3, 4}));
  add_scaled_(model.dense->value.grad(), model.dense->value.grad(), 1.0 / ranks - 1);
  model.expert->value.grad().fill_(world.world().rank() == 0 ? 12 : 0);
  BOOST_CHECK_CLOSE_FRACTION(optimizer.reduce_gradients(), 13.0, 1e-6);
}

BOOST_AUTO_TEST_CASE(infinity_in_one_gradient_of_one_rank_skips_the_step_everywhere) {  // CASE 27
  for (const int expert_parallel : expert_parallel_sizes()) {
    const dist::World world(expert_parallel);
    const int last = world.world().size() - 1;
    const auto train = [&](bool inject) {
      const auto model = make_model(tiny_config(2), DType::f32, world);
      ShardedOptimizer optimizer(model->parameters(), world, {}, true, 4096);
      std::vector<Parameter*> experts;
      for (Parameter* p : model->parameters().all())
        if (p->expert) experts.push_back(p);
      for (uint64_t s = 0; s < 5; ++s) {
        if (s == 2 && !inject) continue;
        const NamedTensors before = values_of(*model);
        const auto first =
            whole_moments(optimizer, model->parameters(), ShardedOptimizer::Moment::first);
        const auto second =
            whole_moments(optimizer, model->parameters(), ShardedOptimizer::Moment::second);
        const int64_t steps = optimizer.steps();
        if (s == 2 && world.world().rank() == last) {
          experts[3]->value.set_ready_hook([gradient = experts[3]->value.grad()] {
            gradient.data<float>()[5] = std::numeric_limits<float>::infinity();
          });
        }
        const StepMetrics metrics =
            train_step(*model, optimizer, world, part_of(random_batch(8, 8, s), world),
                       {.lr = 1e-2, .balance = {}});
        BOOST_CHECK_EQUAL(metrics.skipped, s == 2);
        BOOST_CHECK(std::isfinite(metrics.loss));
        if (s != 2) continue;
        BOOST_CHECK(!std::isfinite(metrics.grad_norm));
        if (world.world().rank() == last) experts[3]->value.set_ready_hook(nullptr);
        BOOST_CHECK_EQUAL(optimizer.steps(), steps);
        check_named_same_bits(values_of(*model), before);
        const auto first_after =
            whole_moments(optimizer, model->parameters(), ShardedOptimizer::Moment::first);
        const auto second_after =
            whole_moments(optimizer, model->parameters(), ShardedOptimizer::Moment::second);
        for (size_t i = 0; i < first.size(); ++i) {
          check_same_bits(first_after[i], first[i]);
          check_same_bits(second_after[i], second[i]);
        }
      }
      return values_of(*model);
    };
    check_named_same_bits(train(true), train(false));
  }
}

BOOST_AUTO_TEST_CASE(experts_start_different_and_independent_of_the_layout) {  // CASES 31, 32
  const auto serial = values_of(*make_model(tiny_config(2), DType::f32));
  for (const int expert_parallel : expert_parallel_sizes()) {
    const dist::World world(expert_parallel);
    const auto model = make_model(tiny_config(2), DType::f32, world);
    const NamedTensors mine = values_of(*model);
    check_named_same_bits(mine, serial);
    // Each expert lives on one rank of the group.
    int64_t held = 0;
    for (const auto& [name, value] : mine) held += name.find(".experts.") != std::string::npos;
    BOOST_CHECK_EQUAL(dist::all_reduce_sum(held, world.expert_parallel()), 4 * 4 * 3);
  }
  std::set<std::vector<float>> different;
  for (int layer = 0; layer < 4; ++layer) {
    for (int e = 0; e < 4; ++e) {
      const std::string prefix =
          "model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(e);
      different.insert(serial.at(prefix + ".up_proj.weight").to_vector<float>());
      different.insert(serial.at(prefix + ".gate_proj.weight").to_vector<float>());
    }
  }
  BOOST_CHECK_EQUAL(different.size(), 32u);
}

BOOST_AUTO_TEST_CASE(each_parameter_is_reduced_once_whatever_the_overlap) {  // CASE 35
  for (const int expert_parallel : expert_parallel_sizes()) {
    const dist::World world(expert_parallel);
    for (const int64_t visits : {1, 2, 3}) {
      NamedTensors expected;
      for (const Recompute recompute : {Recompute::none, Recompute::moe, Recompute::block}) {
        for (const bool overlap : {false, true}) {
          BOOST_TEST_CONTEXT("expert_parallel " << expert_parallel << ", visits " << visits
                                                << ", recompute " << int(recompute) << ", overlap "
                                                << overlap) {
            const auto model = make_model(tiny_config(visits), DType::f32, world);
            model->set_recompute(recompute);
            ShardedOptimizer optimizer(model->parameters(), world, {}, overlap, 2048);
            for (uint64_t s = 0; s < 2; ++s) {
              train_step(*model, optimizer, world, part_of(random_batch(8, 8, s, true), world, 2),
                         {.lr = 1e-2, .balance = {}});
              for (const int times : optimizer.reductions()) BOOST_CHECK_EQUAL(times, 1);
            }
            if (expected.empty()) {
              expected = values_of(*model);
            } else {
              check_named_same_bits(values_of(*model), expected);
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_expert_without_tokens_keeps_decaying_and_moving) {  // CASE 72
  const auto run = [](const dist::World& world) {
    const auto model = make_model(tiny_config(2), DType::f32, world);
    ShardedOptimizer optimizer(model->parameters(), world, {});
    NamedTensors before;
    std::vector<Tensor> moments;
    for (uint64_t s = 0; s < 3; ++s) {
      force_experts(*model,
                    s == 0 ? std::vector<double>{0, 0, 8, 9} : std::vector<double>{9, 8, 0, 0});
      train_step(*model, optimizer, world, part_of(random_batch(8, 8, s), world),
                 {.lr = 1e-2, .balance = {}});
      const NamedTensors now = values_of(*model);
      const auto first =
          whole_moments(optimizer, model->parameters(), ShardedOptimizer::Moment::first);
      const std::string name = "model.layers.1.mlp.experts.3.up_proj.weight";
      if (s > 0 && now.count(name)) {
        BOOST_CHECK_GT(largest(add_scaled(now.at(name), before.at(name), -1)), 1e-3);
        const auto all = model->parameters().all();
        for (size_t i = 0; i < all.size(); ++i) {
          for (const TensorPiece& piece : all[i]->pieces) {
            if (piece.name != name) continue;
            const Tensor m = Parameter::view_piece(first[i], piece);
            BOOST_CHECK_GT(largest(m), 0);
            check_close(m, scale(Parameter::view_piece(moments[i], piece), 0.9), 1e-6, 0);
          }
        }
      }
      before = now;
      moments = first;
    }
    return before;
  };
  const NamedTensors serial = run(dist::World::single());
  for (const int expert_parallel : expert_parallel_sizes())
    check_named_close(run(dist::World(expert_parallel)), serial, 2e-4);
}

BOOST_AUTO_TEST_SUITE_END()
