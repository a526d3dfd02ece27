// The closed formula of activation memory against what the allocator hands out in real passes.
#include "moe/activation_memory.h"

#include "tensor/allocator.h"
#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

constexpr Recompute kModes[] = {Recompute::none, Recompute::moe, Recompute::block};

struct Measured {
  double kept, peak;
};

/// Bytes above the model, its gradients and the input: between the passes, and at the highest. On
/// one thread: attention's scratch, which is not of the formula, has about half a MiB for each.
Measured measure_here(const ModelConfig& config, const MicroBatch& batch) {
  const auto model = make_model(config, batch.dtype);
  model->set_recompute(batch.recompute);
  const ModelInput input =
      random_batch(batch.sequences, batch.seq_len, 61, false, config.vocab_size).input();
  run_backward(*model, input);  // creates the gradients
  const auto before = double(allocator().stats().live_bytes);
  allocator().reset_peak();
  const Variable loss = training_loss(*model, input, {}, totals_of({input}));
  const double kept = double(allocator().stats().live_bytes) - before;
  backward(loss);
  return {kept, double(allocator().stats().peak_live_bytes) - before};
}

Measured measure(const ModelConfig& config, const MicroBatch& batch) {
  return with_threads(1, [&] { return measure_here(config, batch); });
}

/// Wide enough that tensors and not their number decide.
ModelConfig medium() {
  ModelConfig c = tiny_config(2);
  c.hidden_size = 64;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 16;
  c.num_experts = 8;
  c.expert_hidden_size = 40;
  c.vocab_size = 300;
  c.max_seq_len = 256;
  return c;
}

void check(const ModelConfig& config, MicroBatch batch) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Recompute mode : kModes) {
      batch.dtype = dtype;
      batch.recompute = mode;
      const ActivationMemory formula = activation_memory(config, batch);
      const Measured measured = measure(config, batch);
      BOOST_TEST_CONTEXT(name_of(dtype) << ", recompute " << int(mode) << ": kept " << measured.kept
                                        << ", peak " << measured.peak) {
        BOOST_TEST_MESSAGE("kept " << double(formula.kept.total()) / measured.kept << " peak "
                                   << double(formula.peak()) / measured.peak);
        BOOST_CHECK_CLOSE_FRACTION(double(formula.kept.total()), measured.kept, 0.01);
        BOOST_CHECK_CLOSE_FRACTION(double(formula.peak()), measured.peak,
                                   dtype == DType::f32 ? 0.02 : 0.10);
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(activation_memory)

BOOST_AUTO_TEST_CASE(plain_models_keep_what_the_formula_says) {
  ModelConfig config = medium();
  config.loop.layers = 0;
  check(config, {.sequences = 2, .seq_len = 64});
  check(config, {.sequences = 5, .seq_len = 200});
}

BOOST_AUTO_TEST_CASE(looped_models_keep_what_the_formula_says) {
  for (const LoopKv kv : {LoopKv::own, LoopKv::first}) {
    for (const LoopOrder order : {LoopOrder::span, LoopOrder::layer}) {
      for (const int64_t visits : {2, 3}) {
        ModelConfig config = medium();
        config.loop.visits = visits;
        config.loop.kv = kv;
        config.loop.order = order;
        BOOST_TEST_CONTEXT("kv " << int(kv) << ", order " << int(order) << ", visits " << visits) {
          check(config, {.sequences = 3, .seq_len = 100});
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(shared_experts_wide_experts_and_models_without_qk_norm_fit_too) {
  ModelConfig config = medium();
  config.shared_expert_hidden_size = 150;
  config.qk_norm = QkNorm::none;
  check(config, {.sequences = 2, .seq_len = 100});
  config = medium();
  config.expert_hidden_size = 200;  // wider than the model
  config.tie_embeddings = true;
  check(config, {.sequences = 2, .seq_len = 100});
  config = medium();
  config.loop = {.start = 1, .layers = 3, .visits = 2};  // the last step is in the span
  config.num_experts = 64;                               // many, and few rows
  config.top_k = 1;
  check(config, {.sequences = 6, .seq_len = 200});
}

BOOST_AUTO_TEST_CASE(norms_of_whole_projections_and_clipping_fit_too) {
  for (const QkNorm norm : {QkNorm::projection, QkNorm::none}) {
    for (const double clip : {0.0, 0.5}) {
      ModelConfig config = medium();
      config.qk_norm = norm;
      config.clip_qkv = clip;
      BOOST_TEST_CONTEXT("norm " << int(norm) << ", clip " << clip) {
        check(config, {.sequences = 2, .seq_len = 100});
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_large_vocabulary_is_held_in_blocks) {
  ModelConfig config = medium();
  config.num_layers = 2;
  config.loop.layers = 0;
  config.vocab_size = 20000;  // 209 tokens of logits at a time
  check(config, {.sequences = 4, .seq_len = 100});
}

BOOST_AUTO_TEST_SUITE_END()
