// Memory of activations in closed form: what one micro-batch keeps between its forward and its
// backward pass, and the highest live size on the way, without parameters, gradients and moments.
//
// The terms follow what the differentiable functions save (autograd/*.cpp), tensor by tensor, each
// rounded to the allocator's size class. Letters: T tokens of the micro-batch, H hidden_size,
// Q = num_heads * head_dim, C = num_kv_heads * head_dim, E num_experts, k top_k, F and F_s expert
// and shared expert width, V vocabulary; b bytes of the compute dtype; w = 4 bytes (8 in f64
// models) of what is never rounded. The token ids, targets and ranges belong to the caller and are
// not counted.
#pragma once

#include "moe/config.h"
#include "tensor/dtype.h"

namespace smelt {

/// One micro-batch of one rank. With expert_parallel > 1 the load is taken as even: a rank receives
/// as many rows as it sends, T k.
struct MicroBatch {
  int64_t sequences = 1;
  int64_t seq_len = 0;
  DType dtype = DType::f32;
  Recompute recompute = Recompute::none;
  int64_t expert_parallel = 1;
  int64_t tokens() const { return sequences * seq_len; }
};

/// Bytes that executed steps keep for backward. Per step, without recomputation:
///   residual  2 T H b: what the two norms read
///   norms     2 T H b, and 2 T w of scales: what the projections and the router read
///   queries   T Q b; with QK norm T Q b more and T num_heads w of scales
///   keys      the same with C where the step stores them, 0 where it reads an earlier visit's
///   values    T C b, likewise
///   mix       T Q b and T num_heads w: attention's output and log-sum-exp
///   router    2 T E w (probabilities, gradient of the z-loss), T k (w + 4) (weights, indices) and
///             8 E per sequence (loads)
///   dispatch  8 T k of row numbers; with expert parallelism 8 T k more
///   rows      0; with expert parallelism 2 T k H b: what the experts read and what they return
///   expert    2 T k F b: gate and up; with expert parallelism T k F b more, their product
///   shared    3 T F_s b
/// recompute = moe drops dispatch, rows, expert and shared; block drops all but T H b of residual
/// and the keys and values that later visits read.
struct KeptActivations {
  int64_t residual = 0, norms = 0, queries = 0, keys = 0, values = 0, mix = 0;
  int64_t router = 0, dispatch = 0, rows = 0, expert = 0, shared = 0;
  /// Final norm and loss: 2 T H b + T w (the norm's input, the loss's gradient by it) + V H w (by
  /// the output matrix).
  int64_t head = 0;

  int64_t moe() const { return dispatch + rows + expert + shared; }
  int64_t steps() const {
    return residual + norms + queries + keys + values + mix + router + moe();
  }
  int64_t total() const { return steps() + head; }
  KeptActivations& operator+=(const KeptActivations& other);
};

struct ActivationMemory {
  KeptActivations kept;  // of all executed steps, when backward begins
  /// Highest live size while the loss is computed: all that is kept, the last hidden states, the
  /// losses, and one block of logits with its inputs and gradients.
  int64_t peak_loss = 0;
  /// Highest live size while the last executed step runs backward, from its end to its attention;
  /// earlier steps find less. The loss's part is gone by then. A recomputed part is whole again for
  /// the time, and gradients live beside it: of the residual stream and of the update, and of one
  /// tensor's readers at a time, e.g. T k H b of the experts' output and 2 T k F b inside them.
  /// With expert parallelism also forward, where rows that return are held twice more.
  int64_t peak_backward = 0;
  int64_t peak() const { return peak_loss > peak_backward ? peak_loss : peak_backward; }
};

/// With balance = aux and z_loss_coef above 0; without them the router's gradients are missing from
/// the peak. The scratch of attention, about half a MiB for each thread, is not counted.
ActivationMemory activation_memory(const ModelConfig& config, const MicroBatch& batch);

}  // namespace smelt
