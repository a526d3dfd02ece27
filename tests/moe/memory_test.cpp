// Memory of a run stays flat.
#include "tensor/allocator.h"
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

struct Footprint {
  size_t live_bytes;
  int64_t live_blocks, system_allocations;
};
Footprint footprint() {
  const AllocatorStats stats = allocator().stats();
  return {stats.live_bytes, stats.live_blocks, stats.system_allocations};
}

/// Runs f 200 times; after the tenth, what lives must stay the same to the block, and routing that
/// changes from step to step may ask the system for a few more sizes only.
template <typename F>
void check_flat(F&& f) {
  for (int i = 0; i < 10; ++i) f(i);
  const Footprint start = footprint();
  for (int i = 10; i < 200; ++i) {
    f(i);
    BOOST_REQUIRE_EQUAL(footprint().live_bytes, start.live_bytes);
    BOOST_REQUIRE_EQUAL(footprint().live_blocks, start.live_blocks);
  }
  BOOST_CHECK_LE(footprint().system_allocations - start.system_allocations, 40);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory)

BOOST_AUTO_TEST_CASE(training_steps_leave_nothing_behind) {  // CASE 112
  const dist::World world = dist::World::single();
  for (const double aux : {0.0, 0.01}) {
    for (const Recompute recompute : {Recompute::none, Recompute::block}) {
      const auto model = make_model(tiny_config(2), DType::f32);
      model->set_recompute(recompute);
      ShardedOptimizer optimizer(model->parameters(), world, {});
      check_flat([&](int i) {
        const Batch batch = random_batch(4, 8, uint64_t(i), true);
        train_step(*model, optimizer, world, batch.micro_batches(0, 4, 2),
                   {.lr = 1e-2, .balance = {.aux_loss_coef = aux}});
      });
    }
  }
}

BOOST_AUTO_TEST_CASE(evaluation_leaves_nothing_behind) {  // CASE 112
  const auto model = make_model(tiny_config(2), DType::f32);
  check_flat([&](int i) { model->token_losses(random_batch(4, 8, uint64_t(i), true).input()); });
}

BOOST_AUTO_TEST_CASE(a_pass_that_is_never_walked_backward_leaves_nothing_behind) {
  const auto model = make_model(tiny_config(2), DType::f32);
  check_flat([&](int i) {
    const ModelInput input = random_batch(4, 8, uint64_t(i), true).input();
    model->loss(input, {}, totals_of({input}));
  });
}

BOOST_AUTO_TEST_SUITE_END()
