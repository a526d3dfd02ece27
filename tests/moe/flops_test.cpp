// The work that passes execute against the work that the budget says they cost.
#include "moe/budget.h"
#include "tensor/flop_counter.h"
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

constexpr double kSame = 1e-12;  // counts are sums of integers: only the mean context is rounded

/// Mean number of keys that a position sees.
double mean_context(const ModelInput& input) {
  double pairs = 0;
  for (const int32_t end : input.layout.key_end.to_vector<int32_t>()) pairs += end;
  for (const int32_t begin : input.layout.key_begin.to_vector<int32_t>()) pairs -= begin;
  return pairs / double(input.tokens.numel());
}

/// What the budget says of this input: all positions cost F, those with a target the head.
struct Expected {
  Expected(const ModelConfig& config, const ModelInput& input)
      : blocks(budget_of(config, mean_context(input)).flops_per_token *
               double(input.tokens.numel())),
        head(budget_of(config, 0).flops_head * double(count_targets(input.targets))) {}
  double blocks, head;
  double total() const { return blocks + head; }
};

double count_training(const ModelConfig& config, const ModelInput& input,
                      Recompute recompute = Recompute::none, DType dtype = DType::f32) {
  const auto model = make_model(config, dtype);
  model->set_recompute(recompute);
  const FlopCounter counter;
  run_backward(*model, input);
  return counter.total();
}

/// Plain and looped shapes with every switch that changes what is executed.
std::vector<ModelConfig> shapes() {
  std::vector<ModelConfig> result;
  for (const LoopOrder order : {LoopOrder::span, LoopOrder::layer}) {
    for (const LoopKv kv : {LoopKv::own, LoopKv::first}) {
      for (const int64_t visits : {1, 2, 3}) result.push_back(tiny_config(visits, order, kv));
    }
  }
  ModelConfig c = tiny_config(2);
  c.loop.layers = 0;  // no loop at all
  c.shared_expert_hidden_size = 10;
  c.tie_embeddings = true;
  result.push_back(c);
  c = tiny_config(2);
  c.num_heads = 6;
  c.num_kv_heads = 2;
  c.qk_norm = QkNorm::none;
  c.top_k = 3;
  c.shared_expert_hidden_size = 7;
  result.push_back(c);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(flops)

BOOST_AUTO_TEST_CASE(a_training_pass_executes_what_the_budget_counts) {
  for (const ModelConfig& config : shapes()) {
    for (const bool documents : {false, true}) {
      const ModelInput input = random_batch(3, 16, 71, documents).input();
      BOOST_TEST_CONTEXT("visits " << config.loop.visits << ", order " << int(config.loop.order)
                                   << ", kv " << int(config.loop.kv) << ", heads "
                                   << config.num_heads << ", documents " << documents) {
        const Expected expected(config, input);
        BOOST_CHECK_CLOSE_FRACTION(count_training(config, input), expected.total(), kSame);
        BOOST_CHECK_CLOSE_FRACTION(count_training(config, input, Recompute::none, DType::bf16),
                                   expected.total(), kSame);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_forward_pass_is_a_third_and_attention_follows_the_context) {
  const ModelConfig config = tiny_config(2);
  const ModelInput input = random_batch(3, 16, 72, true).input();
  const Expected expected(config, input);
  const auto model = make_model(config, DType::f32);
  const FlopCounter counter;
  model->token_losses(input);
  BOOST_CHECK_CLOSE_FRACTION(counter.total(), expected.total() / 3, kSame);
  const double without_context =
      budget_of(config, 0).flops_per_token * double(input.tokens.numel());
  BOOST_CHECK_CLOSE_FRACTION(counter.attention(), (expected.blocks - without_context) / 3, 1e-10);
}

BOOST_AUTO_TEST_CASE(recomputed_work_is_counted_again) {
  for (const ModelConfig& config : shapes()) {
    const ModelInput input = random_batch(2, 16, 73, true).input();
    const Expected expected(config, input);
    // Whole steps run forward twice: four thirds of the blocks' part, the head as before.
    BOOST_CHECK_CLOSE_FRACTION(count_training(config, input, Recompute::block),
                               expected.blocks * 4 / 3 + expected.head, kSame);
    // Only the feed-forwards run forward twice: 6 H F per routed row, 6 H F_s per token.
    const double experts =
        6.0 * double(config.hidden_size) *
        double(config.expert_hidden_size * config.top_k + config.shared_expert_hidden_size);
    const auto depth = double(ExecutionPlan(config.num_layers, config.loop).executed_depth());
    BOOST_CHECK_CLOSE_FRACTION(count_training(config, input, Recompute::moe),
                               expected.total() + experts * depth * double(input.tokens.numel()),
                               kSame);
  }
}

BOOST_AUTO_TEST_CASE(an_outer_counter_sees_what_inner_ones_count) {
  const ModelConfig config = tiny_config(2);
  const ModelInput input = random_batch(1, 8, 74).input();
  BOOST_CHECK(!FlopCounter::counting());
  const FlopCounter outer;
  const double first = count_training(config, input), second = count_training(config, input);
  BOOST_CHECK_GT(first, 0);
  BOOST_CHECK_EQUAL(outer.total(), first + second);
}

BOOST_AUTO_TEST_SUITE_END()
