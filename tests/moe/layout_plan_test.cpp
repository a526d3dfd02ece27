// Layouts against numbers worked out by hand, against real allocations, and against a search of
// all.
#include "moe/layout_plan.h"

#include <optional>
#include <set>
#include <tuple>

#include "moe/budget.h"
#include "tensor/allocator.h"
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

/// One layer whose tensors are multiples of 64 bytes: 2160 dense elements (embedding and head 512
/// each, q and o 256, k with v 512, router 64, three norms 16), 768 of each of four experts.
ModelConfig small() {
  ModelConfig c;
  c.hidden_size = 16;
  c.num_layers = 1;
  c.num_heads = c.num_kv_heads = 1;
  c.head_dim = 16;
  c.num_experts = 4;
  c.top_k = 2;
  c.expert_hidden_size = 16;
  c.vocab_size = 32;
  c.max_seq_len = 8;
  c.qk_norm = QkNorm::none;
  return c;
}
constexpr TrainingSizes kSmall{.seq_len = 8, .micro_batch = 2, .global_batch = 16};

/// The largest cells of the ladder: 54e9 parameters without embedding and head.
ModelConfig large(bool looped) {
  ModelConfig c;
  c.hidden_size = looped ? 1848 : 2304;
  c.num_layers = 30;
  c.num_heads = 36;
  c.num_kv_heads = 9;
  c.head_dim = looped ? 42 : 64;
  c.num_experts = looped ? 504 : 336;
  c.top_k = 8;
  c.expert_hidden_size = looped ? 640 : 768;
  c.vocab_size = 32769;
  c.max_seq_len = 4096;
  if (looped) c.loop = {.layers = 15, .visits = 2};
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layout_plan)

BOOST_AUTO_TEST_CASE(a_small_model_on_four_ranks_needs_what_is_worked_out_by_hand) {
  const LayoutPlan plan = plan_layout(small(), kSmall, {.ranks = 4, .expert_parallel = 2}, 1000);
  BOOST_CHECK_EQUAL(plan.dense_parameters, 2160);
  BOOST_CHECK_EQUAL(plan.expert_parameters, 2 * 768);
  const LayoutMemory& memory = plan.memory;
  // Dense: padded to 2176 elements for four equal parts, 8704 bytes, in a block of 9216.
  BOOST_CHECK_EQUAL(memory.masters, 9216 + 6144);
  BOOST_CHECK_EQUAL(memory.gradients, 9216 + 6144);
  BOOST_CHECK_EQUAL(memory.saving, 9216 + 6144);
  BOOST_CHECK_EQUAL(memory.compute, 0);
  // Parts of 544 elements; the second rank's is 240 of q and 304 of k and v: 960 and 1280 bytes.
  BOOST_CHECK_EQUAL(memory.moments, 2 * (960 + 1280) + 2 * 3072);
  BOOST_CHECK_EQUAL(memory.tables, 2 * 8 * 8 * 4);
  BOOST_CHECK_EQUAL(memory.inputs, 2 * 5 * 16 * 4);  // two passes of 16 tokens
  // Three other ranks' parts of the one dense bucket, 6528 bytes, and one of the experts'.
  BOOST_CHECK_EQUAL(memory.reduction_buffers, 6656 + 3072);
  BOOST_CHECK_EQUAL(memory.state(), 15360 + 15360 + 10624 + 512);
  BOOST_CHECK_EQUAL(memory.total(),
                    memory.state() + std::max(memory.saving, memory.activations_peak + 640 + 9728));

  // 2 passes x 16 tokens x 2 experts x 16 values, four times; half of the rows leave the rank.
  BOOST_CHECK_EQUAL(plan.communication.all_to_all, 4 * 1024 * 4 / 2.0);
  BOOST_CHECK_EQUAL(plan.communication.reduce_scatter, 8704 * 0.75 + 6144 * 0.5);
  BOOST_CHECK_EQUAL(plan.communication.all_gather, 9600.0);
  BOOST_CHECK_CLOSE_FRACTION(plan.communication_seconds, (8192 + 2 * 9600) / 1000.0, 1e-12);
}

BOOST_AUTO_TEST_CASE(bf16_halves_what_is_exchanged_and_recomputation_repeats_it) {
  const Layout layout{.ranks = 4, .expert_parallel = 2};
  TrainingSizes sizes = kSmall;
  sizes.dtype = DType::bf16;
  sizes.recompute = Recompute::moe;
  const LayoutPlan plan = plan_layout(small(), sizes, layout, 1000);
  BOOST_CHECK_EQUAL(plan.memory.compute, 4608 + 3072);
  BOOST_CHECK_EQUAL(plan.memory.masters, 9216 + 6144);
  BOOST_CHECK_EQUAL(plan.communication.all_to_all, 6 * 1024 * 2 / 2.0);
  BOOST_CHECK_EQUAL(plan.communication.all_gather, 9600.0);  // masters travel, in f32
  ModelConfig looped = small();
  looped.loop = {.layers = 1, .visits = 3};
  BOOST_CHECK_EQUAL(plan_layout(looped, sizes, layout, 1000).communication.all_to_all,
                    3 * plan.communication.all_to_all);
}

BOOST_AUTO_TEST_CASE(one_rank_communicates_nothing) {
  for (const Recompute recompute : {Recompute::none, Recompute::block}) {
    TrainingSizes sizes = kSmall;
    sizes.recompute = recompute;
    const LayoutPlan plan = plan_layout(small(), sizes, {}, 1000);
    BOOST_CHECK_EQUAL(plan.communication.total(), 0.0);
    BOOST_CHECK_EQUAL(plan.communication_seconds, 0.0);
    BOOST_CHECK_EQUAL(plan.memory.reduction_buffers, 0);
  }
}

BOOST_AUTO_TEST_CASE(the_parts_of_all_ranks_are_the_whole_model) {
  for (const bool looped : {false, true}) {
    const ModelConfig config = large(looped);
    const Budget budget = budget_of(config, 1);
    for (const int64_t E : {1, 2, 8}) {
      const LayoutPlan plan = plan_layout(config, {.seq_len = 4096, .global_batch = 64},
                                          {.ranks = 16, .expert_parallel = E}, 1e9);
      BOOST_CHECK_EQUAL(plan.dense_parameters + E * plan.expert_parameters, budget.params_total);
      // Each element has one owner: the dense ones among 16 ranks, experts among 16 / E. Blocks
      // are up to an eighth larger than what they hold.
      const double moments = 8 * (double(plan.dense_parameters) / 16 +
                                  double(plan.expert_parameters) * double(E) / 16);
      BOOST_CHECK_GE(double(plan.memory.moments), moments);
      BOOST_CHECK_LE(double(plan.memory.moments), 1.125 * moments);
    }
  }
}

BOOST_AUTO_TEST_CASE(one_rank_allocates_what_the_plan_says) {
  ModelConfig odd = tiny_config(2);
  odd.hidden_size = 52;
  odd.head_dim = 14;
  odd.shared_expert_hidden_size = 33;
  odd.vocab_size = 301;
  ModelConfig tied = tiny_config(1);
  tied.qk_norm = QkNorm::none;
  tied.tie_embeddings = true;
  ModelConfig whole = odd;
  whole.qk_norm = QkNorm::projection;
  whole.clip_qkv = 1;
  for (const ModelConfig& config : {odd, tied, whole}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const LayoutMemory plan = plan_layout(config, {.seq_len = 8, .dtype = dtype}, {}, 1e9).memory;
      const size_t before = allocator().stats().live_bytes;
      const auto grown = [&] { return int64_t(allocator().stats().live_bytes - before); };
      const auto model = make_model(config, dtype);
      const ShardedOptimizer optimizer(model->parameters(), dist::World::single(), {});
      BOOST_CHECK_EQUAL(grown(), plan.state());
      BOOST_CHECK_GE(plan.moments, optimizer.state_bytes());
      // Nobody shares them: moments are written from where they are.
      ShardedOptimizer::MomentGather gather(optimizer, ShardedOptimizer::Moment::first);
      for (const Parameter* p : model->parameters().all()) gather.of(*p);
      BOOST_CHECK_EQUAL(plan.saving, 0);
      BOOST_CHECK_EQUAL(grown(), plan.state());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_training_step_reaches_the_peak_of_the_plan) {
  ModelConfig config = tiny_config(2);
  config.hidden_size = 64;
  config.expert_hidden_size = 40;
  const dist::World world = dist::World::single();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Recompute recompute : {Recompute::none, Recompute::moe, Recompute::block}) {
      const TrainingSizes sizes{.seq_len = 64,
                                .micro_batch = 8,
                                .global_batch = 16,
                                .dtype = dtype,
                                .recompute = recompute};
      const LayoutMemory plan = plan_layout(config, sizes, {}, 1e9).memory;
      allocator().reset_peak();
      const size_t before = allocator().stats().live_bytes;
      const auto model = make_model(config, dtype);
      model->set_recompute(recompute);
      ShardedOptimizer optimizer(model->parameters(), world, {});
      with_threads(1, [&] {  // attention's scratch grows with threads
        train_step(*model, optimizer, world, random_batch(16, 64, 91).micro_batches(0, 16, 8),
                   {.lr = 1e-3, .balance = {}});
      });
      BOOST_TEST_CONTEXT(name_of(dtype) << ", recompute " << int(recompute)) {
        BOOST_CHECK_CLOSE_FRACTION(double(allocator().stats().peak_live_bytes - before),
                                   double(plan.state() + plan.inputs + plan.activations_peak),
                                   0.05);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_smallest_layout_is_the_best_of_all) {
  ModelConfig config = tiny_config(2);
  config.num_experts = 6;
  const TrainingSizes sizes{.seq_len = 64, .micro_batch = 4, .global_batch = 48};
  const std::vector<int64_t> candidates = {12, 1, 3, 8, 2, 6, 4};
  const double bandwidth = 1e6;
  int found = 0;
  std::set<std::tuple<int64_t, int64_t, int, int64_t>> different;
  for (int64_t memory = 100000; memory < 4000000; memory += 50000) {
    using Key = std::tuple<int64_t, int, bool, double, int64_t>;
    std::optional<Key> best;
    for (const int64_t R : candidates) {
      for (int64_t E = 1; E <= R; ++E) {
        if (R % E != 0 || config.num_experts % E != 0) continue;
        for (const Recompute recompute : {Recompute::none, Recompute::moe, Recompute::block}) {
          for (const int64_t micro_batch : {1, 4}) {
            if (sizes.global_batch % (R * micro_batch) != 0) continue;
            TrainingSizes tried = sizes;
            tried.recompute = recompute;
            tried.micro_batch = micro_batch;
            const LayoutPlan plan = plan_layout(config, tried, {R, E}, bandwidth);
            if (plan.memory.total() > memory) continue;
            const Key key{R, int(recompute), micro_batch == 1, plan.communication_seconds, E};
            if (!best || key < *best) best = key;
          }
        }
      }
    }
    BOOST_TEST_CONTEXT("memory " << memory) {
      if (!best) {
        BOOST_CHECK_THROW(smallest_layout(config, sizes, candidates, memory, bandwidth),
                          ConfigError);
        continue;
      }
      ++found;
      const LayoutPlan plan = smallest_layout(config, sizes, candidates, memory, bandwidth);
      const Key key{plan.layout.ranks, int(plan.sizes.recompute), plan.sizes.micro_batch == 1,
                    plan.communication_seconds, plan.layout.expert_parallel};
      BOOST_CHECK(key == *best);
      BOOST_CHECK_LE(plan.memory.total(), memory);
      different.insert({plan.layout.ranks, plan.layout.expert_parallel, int(plan.sizes.recompute),
                        plan.sizes.micro_batch});
    }
  }
  BOOST_CHECK_GT(found, 10);
  BOOST_CHECK_GT(different.size(), 5u);  // else memory decided nothing
}

BOOST_AUTO_TEST_CASE(the_largest_cells_fit_on_8_to_64_devices) {
  for (const bool looped : {false, true}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const TrainingSizes sizes{
          .seq_len = 4096, .micro_batch = 4, .global_batch = 256, .dtype = dtype};
      const LayoutPlan plan =
          smallest_layout(large(looped), sizes, powers_of_two(64), 141'000'000'000, 50e9);
      BOOST_TEST_MESSAGE((looped ? "looped " : "plain ")
                         << name_of(dtype) << ": " << plan.layout.ranks << " ranks, E "
                         << plan.layout.expert_parallel << ", recompute "
                         << int(plan.sizes.recompute) << ", micro_batch " << plan.sizes.micro_batch
                         << ", " << double(plan.memory.total()) / 1e9 << " GB, "
                         << plan.communication_seconds << " s");
      BOOST_CHECK_GE(plan.layout.ranks, 8);
      BOOST_CHECK_LE(plan.layout.ranks, 64);
      BOOST_CHECK_GT(plan.layout.expert_parallel, 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(layouts_that_cannot_be_are_refused) {
  const auto refuses = [](const Layout& layout, const TrainingSizes& sizes, const char* text) {
    BOOST_CHECK_EXCEPTION(plan_layout(small(), sizes, layout, 1e9), ConfigError, says(text));
  };
  refuses({4, 3}, kSmall, "dist.expert_parallel = 3 must divide the number of ranks, 4");
  refuses({8, 8}, kSmall, "model.num_experts = 4 must be divisible by dist.expert_parallel = 8");
  refuses({0, 1}, kSmall, "ranks = 0 must be at least 1");
  refuses({16, 1}, kSmall,
          "train.global_batch = 16 must be a multiple of ranks x train.micro_batch = 16 x 2 = 32");
  BOOST_CHECK_EXCEPTION(plan_layout(small(), kSmall, {}, 0), ConfigError, says("bandwidth = 0"));
  BOOST_CHECK_EXCEPTION(
      smallest_layout(small(), kSmall, {1, 2, 4}, 1000, 1e9), ConfigError,
      says("no layout fits 1e-06 GB per rank: 4 ranks with dist.expert_parallel = 4"));
  BOOST_CHECK_EXCEPTION(smallest_layout(small(), kSmall, {3, 5}, 1000, 1e9), ConfigError,
                        says("train.global_batch = 16 is not a multiple of any number of ranks"));
}

BOOST_AUTO_TEST_SUITE_END()
