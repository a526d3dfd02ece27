// Budgets against numbers worked out by hand.
#include "moe/budget.h"

#include <boost/test/unit_test.hpp>

using namespace smelt;

namespace {

/// The small model of CASES 39: every projection 4 x 4, four experts of width 3, two of them
/// active.
ModelConfig small() {
  ModelConfig c;
  c.hidden_size = 4;
  c.num_layers = 4;
  c.num_heads = c.num_kv_heads = 1;
  c.head_dim = 4;
  c.num_experts = 4;
  c.top_k = 2;
  c.expert_hidden_size = 3;
  c.vocab_size = 10;
  c.qk_norm = false;
  c.loop = {.start = 1, .layers = 2, .visits = 2};
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(budget)

BOOST_AUTO_TEST_CASE(shared_layers_count_once_as_parameters_and_twice_as_work) {  // CASE 39
  const Budget b = budget_of(small(), 0);
  BOOST_CHECK_EQUAL(b.params_non_embedding, 932);
  BOOST_CHECK_EQUAL(b.params_total, 932 + 2 * 40);
  BOOST_CHECK_EQUAL(b.params_active, 4 * (64 + 72 + 16 + 8) + 4);
  BOOST_CHECK_EQUAL(b.flops_per_token + b.flops_head, 5712.0);
  BOOST_CHECK_EQUAL(b.flops_head, 240.0);
  BOOST_CHECK_EQUAL(b.executed_depth, 6);
  BOOST_CHECK_EQUAL(b.kv_values_per_token, 6 * 2 * 4);
}

BOOST_AUTO_TEST_CASE(attention_costs_four_products_of_the_context_per_step) {
  // q.k and p.v: 2 * 2 * 4 FLOPs per key, forward; three times that in training; six steps.
  BOOST_CHECK_EQUAL(budget_of(small(), 10).flops_per_token - budget_of(small(), 0).flops_per_token,
                    6 * 3 * 16 * 10.0);
}

BOOST_AUTO_TEST_CASE(visits_that_reuse_keys_and_values_store_and_project_none) {
  ModelConfig c = small();
  c.loop.kv = LoopKv::first;
  const Budget b = budget_of(c, 0);
  BOOST_CHECK_EQUAL(b.kv_values_per_token, 4 * 2 * 4);
  BOOST_CHECK_EQUAL(budget_of(small(), 0).flops_per_token - b.flops_per_token,
                    2 * 3 * 64.0);  // k, v twice
}

BOOST_AUTO_TEST_CASE(a_shared_expert_and_a_tied_head_are_counted) {
  ModelConfig c = small();
  c.shared_expert_hidden_size = 5;
  c.tie_embeddings = true;
  const Budget plain = budget_of(small(), 0), b = budget_of(c, 0);
  BOOST_CHECK_EQUAL(b.params_non_embedding - plain.params_non_embedding, 4 * 3 * 4 * 5);
  BOOST_CHECK_EQUAL(b.flops_per_token - plain.flops_per_token, 6 * 3 * 2 * 60.0);
  BOOST_CHECK_EQUAL(b.params_total - b.params_non_embedding, 40);
}

BOOST_AUTO_TEST_SUITE_END()
