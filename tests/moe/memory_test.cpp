// Memory of a run: what it adds up to, and that it stays flat.
#include <fstream>

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

/// Resident memory of this process in bytes.
double resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) * 1024;
  }
  return 0;
}

/// Floats that backward needs of one token in one executed step, output by output of the layer.
double kept_floats(const ModelConfig& c) {
  const int64_t H = c.hidden_size, q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const int64_t attention = 2 * H + 3 * q + 4 * kv + q + H;  // norm, q and k thrice, v, mix, stream
  const int64_t experts =
      c.top_k * (2 * H + 3 * c.expert_hidden_size);  // rows in, gate, up, product, out
  return double(attention + H + 3 * c.num_experts + experts + 2 * H);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory)

BOOST_AUTO_TEST_CASE(resident_memory_is_what_the_configuration_adds_up_to) {
  ModelConfig config;
  config.hidden_size = 256;
  config.num_heads = 4;
  config.head_dim = 64;
  config.num_experts = 16;
  config.top_k = 4;
  config.loop = {.start = 1, .layers = 2, .visits = 2};
  const double before = resident_bytes();
  const dist::World world = dist::World::single();
  const auto model = make_model(config, DType::f32);
  ShardedOptimizer optimizer(model->parameters(), world, {});
  const int64_t batch = 8, seq_len = 256;
  for (int i = 0; i < 12; ++i) {
    const Batch data = random_batch(batch, seq_len, uint64_t(i), true);
    train_step(*model, optimizer, world, {data.input()}, {.lr = 1e-3, .balance = {}});
  }
  // Parameters, gradients and two moments in f32; activations of every executed step.
  const double state = 16.0 * double(model->parameters().numel());
  const double activations =
      4.0 * double(batch * seq_len * model->plan().executed_depth()) * kept_floats(config);
  const double grown = resident_bytes() - before;
  BOOST_TEST_MESSAGE("grown " << grown << ", state " << state << ", activations " << activations);
  BOOST_CHECK_LE(grown, 1.5 * (state + activations));
  if (kAddressSanitizer) return;
  BOOST_CHECK_GE(grown, 0.5 * (state + activations));  // else the sum above counts something else
}

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
