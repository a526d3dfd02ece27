// FLOPs, activation memory and the plan of a layout where experts live on other ranks.
#include "moe/activation_memory.h"
#include "moe/budget.h"
#include "moe/layout_plan.h"
#include "tensor/allocator.h"
#include "tensor/flop_counter.h"
#include "tests/moe/ranks.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

/// Every expert takes every token: the load is even on any number of ranks.
ModelConfig even_config() {
  ModelConfig c = tiny_config(2);
  c.hidden_size = 64;
  c.num_heads = 4;
  c.head_dim = 16;
  c.expert_hidden_size = 40;
  c.top_k = c.num_experts;
  c.vocab_size = 300;
  c.max_seq_len = 128;
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(accounting_over_ranks)

BOOST_AUTO_TEST_CASE(the_ranks_together_execute_what_the_budget_counts) {
  const ModelConfig config = tiny_config(2);
  for (const int expert_parallel : expert_parallel_sizes()) {
    const dist::World world(expert_parallel);
    const auto model = make_model(config, DType::f32, world);
    const ModelInput input = random_batch(2, 16, 80 + uint64_t(world.world().rank())).input();
    const FlopCounter counter;
    run_backward(*model, input);
    const Budget budget = budget_of(config, (16 + 1) / 2.0);
    const double tokens = 2.0 * 16 * world.world().size();
    BOOST_CHECK_CLOSE_FRACTION(dist::all_reduce_sum(counter.total(), world.world()),
                               (budget.flops_per_token + budget.flops_head) * tokens, 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_with_an_even_load_keeps_what_the_formula_says) {
  const ModelConfig config = even_config();
  for (const int expert_parallel : expert_parallel_sizes()) {
    const dist::World world(expert_parallel);
    for (const Recompute recompute : {Recompute::none, Recompute::moe, Recompute::block}) {
      const auto model = make_model(config, DType::f32, world);
      model->set_recompute(recompute);
      const ModelInput input = random_batch(3, 100, 81, false, config.vocab_size).input();
      run_backward(*model, input);  // creates the gradients
      const auto before = double(allocator().stats().live_bytes);
      allocator().reset_peak();
      double kept = 0;
      with_threads(1, [&] {  // attention's scratch grows with threads
        const Variable loss = training_loss(*model, input, {}, totals_of({input}));
        kept = double(allocator().stats().live_bytes) - before;
        backward(loss);
      });
      const double peak = double(allocator().stats().peak_live_bytes) - before;
      const ActivationMemory formula =
          activation_memory(config, {.sequences = 3,
                                     .seq_len = 100,
                                     .recompute = recompute,
                                     .expert_parallel = expert_parallel});
      BOOST_TEST_CONTEXT("expert_parallel " << expert_parallel << ", recompute "
                                            << int(recompute)) {
        BOOST_CHECK_CLOSE_FRACTION(double(formula.kept.total()), kept, 0.01);
        BOOST_CHECK_CLOSE_FRACTION(double(formula.peak()), peak, 0.02);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_rank_that_holds_most_allocates_what_the_plan_says) {
  const ModelConfig config = even_config();
  for (const int expert_parallel : expert_parallel_sizes()) {
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      const dist::World world(expert_parallel);
      const int ranks = world.world().size();
      const TrainingSizes sizes{
          .seq_len = 100, .micro_batch = 3, .global_batch = 6 * ranks, .recompute = recompute};
      const LayoutMemory plan = plan_layout(config, sizes, {ranks, expert_parallel}, 1e9).memory;
      allocator().reset_peak();
      const size_t before = allocator().stats().live_bytes;
      const auto model = make_model(config, DType::f32, world);
      model->set_recompute(recompute);
      ShardedOptimizer optimizer(model->parameters(), world, {});
      const auto state = double(allocator().stats().live_bytes - before);
      const Batch batch = random_batch(6 * ranks, 100, 82, false, config.vocab_size);
      with_threads(1, [&] {  // attention's scratch grows with threads
        train_step(*model, optimizer, world, part_of(batch, world, 3), {.lr = 1e-3, .balance = {}});
      });
      const auto peak = double(allocator().stats().peak_live_bytes - before);
      BOOST_TEST_CONTEXT("expert_parallel " << expert_parallel << ", recompute "
                                            << int(recompute)) {
        BOOST_CHECK_CLOSE_FRACTION(dist::all_reduce_max(state, world.world()), double(plan.state()),
                                   0.01);
        // Each element's moments are on one rank.
        BOOST_CHECK_EQUAL(dist::all_reduce_sum(optimizer.state_bytes(), world.world()),
                          8 * budget_of(config, 1).params_total);
        const double step = double(plan.state() + plan.inputs + plan.activations_peak);
        BOOST_TEST_MESSAGE("peak " << peak / step << " of the plan without reduction buffers, "
                                   << peak / (step + double(plan.reduction_buffers)) << " with");
        BOOST_CHECK_LE(peak, 1.01 * (step + double(plan.reduction_buffers)));
        BOOST_CHECK_GE(peak, 0.98 * step);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
