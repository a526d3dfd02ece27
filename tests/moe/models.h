// Tiny models and batches that the suites of this folder share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/elementwise.h"
#include "moe/model.h"
#include "moe/sharded_optimizer.h"
#include "moe/train_step.h"
#include "tensor/elementwise.h"
#include "tests/testing.h"

namespace smelt::testing {

/// Prelude 0, span 1 and 2 run `visits` times, coda 3. The large initial weights keep router
/// probabilities apart.
inline ModelConfig tiny_config(int64_t visits = 2, LoopOrder order = LoopOrder::span,
                               LoopKv kv = LoopKv::own) {
  ModelConfig c;
  c.hidden_size = 16;
  c.num_layers = 4;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.head_dim = 8;
  c.num_experts = 4;
  c.top_k = 2;
  c.expert_hidden_size = 12;
  c.vocab_size = 64;
  c.max_seq_len = 64;
  c.init_std = 0.25;
  c.loop = {.start = 1, .layers = 2, .visits = visits, .order = order, .kv = kv};
  return c;
}

inline std::unique_ptr<MoeTransformer> make_model(const ModelConfig& config, DType dtype,
                                                  const dist::World& world = dist::World::single(),
                                                  uint64_t seed = 1) {
  auto model = std::make_unique<MoeTransformer>(config, dtype, world);
  model->parameters().initialize(seed);
  return model;
}

/// Adds the same selection bias to every step of the plan, which forces the choice of experts.
inline void force_experts(MoeTransformer& model, const std::vector<double>& bias) {
  model.enable_expert_bias();
  for (int64_t step = 0; step < model.plan().executed_depth(); ++step)
    model.expert_bias(step).copy_(Tensor::from(bias));
}

/// Sequences on the host, from which ranks and micro-batches cut their part.
struct Batch {
  int64_t sequences = 0, seq_len = 0;
  std::vector<int32_t> tokens, targets, starts;

  ModelInput input(int64_t begin, int64_t end) const {
    const auto cut = [&](const std::vector<int32_t>& v) {
      return std::vector<int32_t>(v.begin() + begin * seq_len, v.begin() + end * seq_len);
    };
    return {Tensor::from(cut(tokens)), Tensor::from(cut(targets)),
            SequenceLayout::from_document_starts(end - begin, seq_len, cut(starts))};
  }
  ModelInput input() const { return input(0, sequences); }
  /// Sequences [begin, end) in micro-batches of `size`.
  std::vector<ModelInput> micro_batches(int64_t begin, int64_t end, int64_t size) const {
    std::vector<ModelInput> result;
    for (int64_t b = begin; b < end; b += size) result.push_back(input(b, b + size));
    return result;
  }
};

/// Random tokens and targets. With documents, boundaries fall at random and about a third of the
/// targets of the first half of the sequences are missing, so that counts differ between parts.
inline Batch random_batch(int64_t sequences, int64_t seq_len, uint64_t seed, bool documents = false,
                          int64_t vocab = 64) {
  const Random random(seed, "test/batch");
  Batch batch{sequences, seq_len, {}, {}, {}};
  uint64_t at = 0;
  for (int64_t b = 0; b < sequences; ++b) {
    int32_t start = 0;
    for (int64_t i = 0; i < seq_len; ++i) {
      batch.tokens.push_back(int32_t(random.below(at++, uint64_t(vocab))));
      const auto target = int32_t(random.below(at++, uint64_t(vocab)));
      const bool missing = random.below(at++, 3) == 0 && documents && b < (sequences + 1) / 2;
      batch.targets.push_back(missing ? -1 : target);
      if (random.below(at++, 3) == 0 && documents) start = int32_t(i);
      batch.starts.push_back(start);
    }
  }
  return batch;
}

/// Copies by name of checkpoint tensor, those of this rank.
using NamedTensors = std::map<std::string, Tensor>;

template <typename TensorOf>
NamedTensors named(ParameterStore& store, TensorOf&& tensor_of) {
  NamedTensors result;
  for (const Parameter* parameter : store.all()) {
    const Tensor whole = tensor_of(*parameter);
    for (const TensorPiece& piece : parameter->pieces)
      result[piece.name] = Parameter::view_piece(whole, piece).clone();
  }
  return result;
}
inline NamedTensors values_of(MoeTransformer& model) {
  return named(model.parameters(), [](const Parameter& p) { return p.value.data(); });
}
inline NamedTensors gradients_of(MoeTransformer& model) {
  return named(model.parameters(), [](const Parameter& p) {
    return p.value.grad().defined() ? p.value.grad()
                                    : Tensor::zeros(p.value.shape(), p.value.data().options());
  });
}

inline double largest(const Tensor& x) {
  double most = 0;
  for (const double v : doubles(x)) most = std::max(most, std::abs(v));
  return most;
}

/// |a - b| <= rtol * largest |b|, per tensor; tensors of `a` may be a part of those of `b`. A
/// tensor that would be zero but for rounding (q and k of a query that sees one key) is measured by
/// 1e-5 of the largest value of all: what cancels there is of their size.
inline void check_named_close(const NamedTensors& a, const NamedTensors& b, double rtol) {
  BOOST_CHECK(!a.empty());
  double floor = 0;
  for (const auto& [name, y] : b) floor = std::max(floor, 1e-5 * largest(y));
  for (const auto& [name, x] : a) {
    BOOST_TEST_CONTEXT(name) {
      BOOST_REQUIRE(b.count(name) == 1);
      check_close(x, b.at(name), 0, rtol * std::max(largest(b.at(name)), floor));
    }
  }
}
inline void check_named_same_bits(const NamedTensors& a, const NamedTensors& b) {
  BOOST_CHECK(!a.empty());
  for (const auto& [name, x] : a) {
    BOOST_TEST_CONTEXT(name) {
      BOOST_REQUIRE(b.count(name) == 1);
      check_same_bits(x, b.at(name));
    }
  }
}

inline StepTotals totals_of(const std::vector<ModelInput>& inputs) {
  StepTotals totals{0, 0, 0, double(inputs.size())};
  for (const ModelInput& input : inputs) {
    totals.targets += double(count_targets(input.targets));
    totals.sequences += double(input.layout.batch);
    totals.tokens += double(input.tokens.numel());
  }
  return totals;
}

/// The training loss of one pass: mean cross-entropy plus the weighted balance terms.
inline Variable training_loss(MoeTransformer& model, const ModelInput& input,
                              const BalanceConfig& balance, const StepTotals& totals) {
  const PassLoss pass = model.loss(input, balance, totals);
  return add_scaled(
      add_scaled(scale(pass.cross_entropy, 1 / totals.targets), pass.aux, balance.aux_loss_coef),
      pass.z, balance.z_loss_coef);
}

/// Loss and gradients of one pass on this process alone, into fresh buffers.
inline double run_backward(MoeTransformer& model, const ModelInput& input,
                           const BalanceConfig& balance = {}) {
  for (const Parameter* p : model.parameters().all())
    p->value.set_grad(Tensor::zeros(p->value.shape(), {accumulation_dtype(model.dtype()), {}}));
  const Variable loss = training_loss(model, input, balance, totals_of({input}));
  const double value = loss.item();
  backward(loss);
  return value;
}

/// AdamW that is plain gradient descent with rate 1: eps dwarfs the second moment and lr undoes it.
constexpr double kHuge = 1e12;
inline AdamWConfig descent() {
  return {.beta1 = 0, .beta2 = 0.95, .eps = kHuge, .weight_decay = 0};
}

/// What one train_step with descent() takes off every value: the gradient, as the step forms it.
struct StepResult {
  StepMetrics metrics;
  NamedTensors gradients;
};
inline StepResult descend(MoeTransformer& model, const dist::World& world,
                          const std::vector<ModelInput>& micro_batches,
                          const BalanceConfig& balance = {}) {
  ShardedOptimizer optimizer(model.parameters(), world, descent());
  const NamedTensors before = values_of(model);
  StepResult result;
  result.metrics = train_step(model, optimizer, world, micro_batches,
                              {.lr = kHuge, .grad_clip = 0, .balance = balance});
  const NamedTensors after = values_of(model);
  for (const auto& [name, x] : before) result.gradients[name] = add_scaled(x, after.at(name), -1);
  return result;
}

}  // namespace smelt::testing
