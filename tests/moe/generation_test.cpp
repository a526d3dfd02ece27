// Generation with the KV cache against the full forward pass.
#include "moe/generate.h"
#include "tensor/allocator.h"
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

/// Logits of all positions of one sequence by the full forward pass, [S, V].
Tensor full_logits(MoeTransformer& model, const std::vector<int32_t>& tokens) {
  const NoGrad no_grad;
  const auto n = int64_t(tokens.size());
  const ModelInput input{
      Tensor::from(tokens),
      {},
      SequenceLayout::from_document_starts(1, n, std::vector<int32_t>(tokens.size(), 0))};
  return model.logits(model.hidden(input)).data();
}

std::vector<int32_t> random_ids(int64_t n, uint64_t seed) {
  return random_indices({n}, 64, seed).to_vector<int32_t>();
}

/// Feeds sequences of different lengths: a first block of prompts[b] tokens, then one by one, with
/// every logit compared. All sequences end at the same number of further tokens.
void check_cached(const ModelConfig& config, const std::vector<int64_t>& prompts, int64_t decoded,
                  DType dtype) {
  const auto model = make_model(config, dtype);
  const auto batch = int64_t(prompts.size());
  const int64_t width = *std::max_element(prompts.begin(), prompts.end());
  std::vector<std::vector<int32_t>> ids;
  std::vector<Tensor> expected;
  for (size_t b = 0; b < prompts.size(); ++b) {
    ids.push_back(random_ids(prompts[b] + decoded, b + 1));
    expected.push_back(full_logits(*model, ids.back()));
  }
  const NoGrad no_grad;
  KvCache cache(model->plan(), batch, width + decoded, config.num_kv_heads, config.head_dim,
                {dtype, {}});
  BOOST_CHECK_EQUAL(cache.slots(), model->plan().kv_slots());
  const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-5;
  for (int64_t i = 0; i <= decoded; ++i) {
    const int64_t n = i == 0 ? width : 1;
    std::vector<int32_t> tokens;
    for (size_t b = 0; b < prompts.size(); ++b) {
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at = i == 0 ? j : prompts[b] + i - 1;
        const bool padding = i == 0 && j >= prompts[b];
        tokens.push_back(padding ? 0 : ids[b][size_t(at)]);
      }
    }
    const ModelInput input{Tensor::from(tokens), {}, SequenceLayout::behind(cache, n)};
    const Tensor logits = model->logits(model->hidden(input, &cache)).data();
    cache.advance(i == 0 ? prompts : std::vector<int64_t>(prompts.size(), 1));
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t from = i == 0 ? 0 : prompts[size_t(b)] + i - 1;
      const int64_t count = i == 0 ? prompts[size_t(b)] : 1;
      BOOST_TEST_CONTEXT("sequence " << b << ", from position " << from) {
        const Tensor want = expected[size_t(b)].slice(0, from, from + count);
        check_close(logits.slice(0, b * n, b * n + count), want, 0, tolerance * largest(want));
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(generation)

BOOST_AUTO_TEST_CASE(prefill_of_5_then_3_one_by_one_equals_the_full_forward) {  // CASE 36
  check_cached(tiny_config(2), {5}, 3, DType::f32);
  check_cached(tiny_config(2), {5}, 3, DType::f64);
}

BOOST_AUTO_TEST_CASE(every_visit_has_its_slot) {  // CASE 36
  const auto slots = [](const ModelConfig& config) {
    const ExecutionPlan plan(config.num_layers, config.loop);
    const KvCache cache(plan, 1, 8, config.num_kv_heads, config.head_dim, {DType::f32, {}});
    BOOST_CHECK_EQUAL(cache.bytes_per_token(),
                      2 * cache.slots() * config.num_kv_heads * config.head_dim * 4);
    return cache.slots();
  };
  BOOST_CHECK_EQUAL(slots(tiny_config(2)), 6);
  BOOST_CHECK_EQUAL(slots(tiny_config(2, LoopOrder::span, LoopKv::first)), 4);
}

BOOST_AUTO_TEST_CASE(the_first_token_is_stored) {  // CASE 46
  check_cached(tiny_config(2), {1}, 2, DType::f64);
}

BOOST_AUTO_TEST_CASE(prompts_of_different_lengths_in_every_kind_of_loop) {
  for (const LoopOrder order : {LoopOrder::span, LoopOrder::layer}) {
    for (const LoopKv kv : {LoopKv::own, LoopKv::first}) {
      for (const int64_t visits : {1, 3}) {
        BOOST_TEST_CONTEXT("order " << int(order) << ", kv " << int(kv) << ", visits " << visits) {
          check_cached(tiny_config(visits, order, kv), {5, 1, 3}, 4, DType::f64);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(memory_that_was_never_written_is_not_read) {
  allocator().set_poison(true);
  check_cached(tiny_config(2), {5, 1, 3}, 4, DType::f64);
  allocator().set_poison(false);
}

BOOST_AUTO_TEST_CASE(greedy_continuation_is_the_argmax_of_the_full_forward) {
  const auto model = make_model(tiny_config(2), DType::f32);
  const std::vector<std::vector<int32_t>> prompts = {random_ids(6, 1), random_ids(2, 2)};
  const auto continued =
      generate(*model, prompts, {.max_new_tokens = 5, .stop_id = -1, .sampling = {}});
  for (size_t b = 0; b < prompts.size(); ++b) {
    std::vector<int32_t> ids = prompts[b];
    for (const int32_t id : continued[b]) {
      const auto logits = doubles(full_logits(*model, ids));
      const auto last = logits.end() - 64;
      BOOST_CHECK_EQUAL(id, int32_t(std::max_element(last, logits.end()) - last));
      ids.push_back(id);
    }
    BOOST_CHECK_EQUAL(continued[b].size(), 5u);
  }
}

BOOST_AUTO_TEST_CASE(a_cache_is_refused_while_gradients_are_recorded) {
  const auto model = make_model(tiny_config(2), DType::f32);
  KvCache cache(model->plan(), 1, 8, 1, 8, {DType::f32, {}});
  const ModelInput input{
      Tensor::from(std::vector<int32_t>{1}), {}, SequenceLayout::behind(cache, 1)};
  BOOST_CHECK_EXCEPTION(model->hidden(input, &cache), Error, says("gradients are recorded"));
}

BOOST_AUTO_TEST_SUITE_END()
