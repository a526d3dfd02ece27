#include "moe/activation_memory.h"

#include <algorithm>

#include "nn/execution_plan.h"
#include "tensor/allocator.h"
#include "tensor/loss.h"

namespace smelt {
namespace {

/// Sizes of one micro-batch and the bytes of its tensors.
struct Sizes {
  Sizes(const ModelConfig& c, const MicroBatch& batch)
      : T(batch.tokens()),
        H(c.hidden_size),
        Q(c.num_heads * c.head_dim),
        C(c.num_kv_heads * c.head_dim),
        E(c.num_experts),
        k(c.top_k),
        F(c.expert_hidden_size),
        Fs(c.shared_expert_hidden_size),
        V(c.vocab_size),
        N(T * k),
        exchanged(batch.expert_parallel > 1),
        dtype(batch.dtype),
        wide(accumulation_dtype(batch.dtype)) {}

  /// [rows, columns] of the compute dtype.
  int64_t values(int64_t rows, int64_t columns) const { return bytes(rows * columns, dtype); }
  /// [n] of what is kept in f32 (f64).
  int64_t full(int64_t n) const { return bytes(n, wide); }
  static int64_t indices(int64_t n) { return bytes(n, DType::i32); }
  static int64_t bytes(int64_t n, DType type) {
    return int64_t(block_bytes(size_t(n * size_of(type))));
  }
  int64_t T, H, Q, C, E, k, F, Fs, V;
  int64_t N;       // rows of the experts
  bool exchanged;  // rows travel between ranks
  DType dtype, wide;
};

/// What one step records, without recomputation.
KeptActivations step_records(const Sizes& s, const ModelConfig& c, const ExecutionStep& step,
                             int64_t sequences) {
  const auto normed = [&](int64_t width, int64_t heads) {
    const int64_t values = s.values(s.T, width), clip = c.clip_qkv > 0 ? values : 0;
    if (c.qk_norm == QkNorm::none) return values + clip;
    return 2 * values + clip + s.full(s.T * (c.qk_norm == QkNorm::head ? heads : 1));
  };
  KeptActivations kept;
  kept.residual = 2 * s.values(s.T, s.H);
  kept.norms = 2 * s.values(s.T, s.H) + 2 * s.full(s.T);
  kept.queries = normed(s.Q, c.num_heads);
  if (step.writes_kv) {
    kept.keys = normed(s.C, c.num_kv_heads);
    kept.values = (c.clip_qkv > 0 ? 2 : 1) * s.values(s.T, s.C);
  }
  kept.mix = s.values(s.T, s.Q) + s.full(s.T * c.num_heads);
  kept.router = 2 * s.full(s.T * s.E) + s.full(s.N) + Sizes::indices(s.N) +
                Sizes::bytes(sequences * s.E, DType::f64);
  kept.dispatch = (s.exchanged ? 4 : 2) * Sizes::indices(s.N);
  kept.rows = s.exchanged ? 2 * s.values(s.N, s.H) : 0;
  kept.expert = s.values(s.N, 2 * s.F) + (s.exchanged ? s.values(s.N, s.F) : 0);
  if (s.Fs > 0) kept.shared = s.values(s.T, 2 * s.Fs) + s.values(s.T, s.Fs);
  return kept;
}

bool read_by_later_visits(const ExecutionStep& step, const ExecutionPlan& plan,
                          const LoopConfig& loop) {
  return loop.kv == LoopKv::first && step.visit == 0 && plan.visits_of(step.layer) > 1;
}

/// What is left of it until backward.
KeptActivations kept_of(KeptActivations all, const Sizes& s, Recompute recompute, bool kv_stays) {
  switch (recompute) {
    case Recompute::none:
      break;
    case Recompute::moe:
      all.dispatch = all.rows = all.expert = all.shared = 0;
      break;
    case Recompute::block:
      all = {.residual = s.values(s.T, s.H)};
      if (kv_stays) all.keys = all.values = s.values(s.T, s.C);
      break;
  }
  return all;
}

/// Live bytes while nodes run backward one after the other.
class Walk {
 public:
  explicit Walk(int64_t live) : live_(live), peak_(live) {}
  /// A node makes gradients and temporaries; then what it saved and the gradient it read are freed.
  void node(int64_t made, int64_t temporary, int64_t freed) {
    peak_ = std::max(peak_, live_ + made + temporary);
    live_ += made - freed;
  }
  int64_t peak() const { return peak_; }

 private:
  int64_t live_, peak_;
};

/// The last step backward, node by node in the order of autograd, down to its attention.
int64_t peak_of_backward(const Sizes& s, const KeptActivations& all, int64_t kept, double scale,
                         Recompute recompute) {
  const int64_t stream = s.values(s.T, s.H), rows = s.values(s.N, s.H);
  const int64_t hidden = s.values(s.N, s.F), gate_up = s.values(s.N, 2 * s.F);
  const int64_t probs = s.full(s.T * s.E);
  // The gradient of the update is a tensor of its own where the residual scale is not 1. What a
  // recomputed part was given stays alive until it ends, as does its output: for a whole step in
  // place of its input, which is among `kept`.
  const int64_t update = scale == 1 ? 0 : stream;
  const int64_t recomputed_moe = recompute == Recompute::moe ? all.moe() + stream : 0;
  const int64_t recomputed_block = recompute == Recompute::block ? all.steps() : 0;

  // Forward, or forward again: rows on their way back lie in the order of the experts and in that
  // of the ranks beside those that arrive; no output and no shared expert yet.
  const int64_t returning = s.exchanged ? 2 * rows - stream - all.shared : 0;

  Walk walk(kept + stream + recomputed_block);
  if (recomputed_moe == 0) walk.node(0, returning, 0);
  walk.node(probs, 0, probs);  // z-loss: its gradient scaled
  walk.node(probs, 0, 0);      // balance loss
  walk.node(update, 0, 0);     // residual connection
  if (recomputed_moe > 0) walk.node(recomputed_moe, returning, 0);
  if (s.Fs > 0) {
    const int64_t shared = s.values(s.T, s.Fs), both = s.values(s.T, 2 * s.Fs);
    walk.node(shared, 0, shared);       // down
    walk.node(both, 0, shared + both);  // SwiGLU
    walk.node(stream, 0, both);         // gate, up
  }
  const int64_t update_read = recomputed_moe > 0 ? 0 : update;
  const int64_t weights = s.full(s.N), numbers = Sizes::indices(s.N);
  // The gradient of x is added to that of the shared expert.
  const int64_t sum = s.Fs > 0 ? stream : 0;
  if (s.exchanged) {
    walk.node(rows + weights, weights, rows + weights + update_read);  // combine
    walk.node(rows, 0, rows);                                          // exchange
    walk.node(rows, 0, rows);                 // into the order of the experts
    walk.node(hidden, 0, rows + hidden);      // down
    walk.node(gate_up, 0, hidden + gate_up);  // SwiGLU
    walk.node(rows, 0, gate_up + rows);       // gate, up
    walk.node(rows, 0, rows);
    walk.node(rows, 0, rows);
    walk.node(stream, sum, rows + all.dispatch + sum);  // permutation
  } else {
    // routed_swiglu_linear: the hidden rows again, gradients by row, either weighted hidden rows or
    // the gradient of hidden rows; then that of gate and up.
    walk.node(0, numbers + weights + rows + 2 * hidden, 0);
    walk.node(gate_up + weights, numbers + weights + hidden, gate_up + weights + update_read);
    walk.node(stream, rows + sum, gate_up + all.dispatch + sum);  // routed_linear
  }
  if (recomputed_moe > 0) walk.node(0, 0, update + stream);
  walk.node(probs, probs, probs);      // weights of the chosen experts, added to the former
  walk.node(probs, probs, 3 * probs);  // softmax, added to the gradient of the z-loss
  walk.node(stream, stream, 2 * stream + probs);                                // router
  walk.node(stream, stream, 3 * stream - (recomputed_block > 0 ? stream : 0));  // norm
  walk.node(update, 0, 0);
  const int64_t queries = s.values(s.T, s.Q);
  walk.node(queries, 0, update);                      // output projection
  walk.node(queries + 2 * s.values(s.T, s.C), 0, 0);  // attention
  return walk.peak();
}

/// Temporaries of the loss: logits of a block (and their gradient where it is narrower), its rows
/// of x and of the gradient.
int64_t loss_scratch(const Sizes& s) {
  const int64_t block = loss_block_tokens(s.T, s.V, s.wide);
  return s.full(block * s.V) + (s.dtype == s.wide ? 0 : s.values(block, s.V)) +
         s.values(block, s.H) + s.full(block * s.H);
}

}  // namespace

KeptActivations& KeptActivations::operator+=(const KeptActivations& o) {
  residual += o.residual;
  norms += o.norms;
  queries += o.queries;
  keys += o.keys;
  values += o.values;
  mix += o.mix;
  router += o.router;
  dispatch += o.dispatch;
  rows += o.rows;
  expert += o.expert;
  shared += o.shared;
  head += o.head;
  return *this;
}

ActivationMemory activation_memory(const ModelConfig& config, const MicroBatch& batch) {
  const ExecutionPlan plan(config.num_layers, config.loop);
  const Sizes s(config, batch);
  ActivationMemory memory;
  for (const ExecutionStep& step : plan.steps()) {
    memory.kept += kept_of(step_records(s, config, step, batch.sequences), s, batch.recompute,
                           read_by_later_visits(step, plan, config.loop));
  }
  const int64_t stream = s.values(s.T, s.H);
  memory.kept.head = 2 * stream + s.full(s.T) + s.full(s.V * s.H);
  memory.peak_loss = memory.kept.total() + stream + s.full(s.T) + loss_scratch(s);
  const ExecutionStep& last = plan.steps().back();
  memory.peak_backward =
      peak_of_backward(s, step_records(s, config, last, batch.sequences), memory.kept.steps(),
                       last.residual_scale, batch.recompute);
  return memory;
}

}  // namespace smelt
