// AdamW over any set of (parameter, gradient) ranges, with global-norm clipping left to the caller:
// only the caller knows which ranks hold other parts of the gradient.
#pragma once

#include <vector>

#include "nn/parameter.h"
#include "tensor/adamw.h"

namespace smelt {

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  bool decay_all = false;  // spans with decay = false (norms, embeddings) too
};

/// A contiguous run of parameters that one optimizer updates.
struct OptimizerSpan {
  Tensor param, grad;  // [n] f32 (f64), views that stay valid
  bool decay = true;
};

class AdamW {
 public:
  /// Moments start at zero. Each span is listed once however often its layer runs.
  AdamW(std::vector<OptimizerSpan> spans, const AdamWConfig& config);
  /// Spans of all parameters of a store, for training on one rank without sharding; creates
  /// gradients.
  static std::vector<OptimizerSpan> spans_of(ParameterStore& store);

  /// One update with gradients multiplied by grad_scale. Experts without tokens are updated too,
  /// with gradient zero: moments decay and weight decay applies (dense rule).
  void step(double lr, double grad_scale);
  /// Sum of squares of all gradients of the spans.
  double grad_sum_squares() const;

  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const std::vector<OptimizerSpan>& spans() const { return spans_; }
  /// First and second moment of span i, like its parameter.
  const Tensor& m(size_t i) const { return m_[i]; }
  const Tensor& v(size_t i) const { return v_[i]; }
  /// Bytes of both moments.
  int64_t state_bytes() const;

 private:
  std::vector<OptimizerSpan> spans_;
  AdamWConfig config_;
  std::vector<Tensor> m_, v_;
  int64_t steps_ = 0;
};

/// Factor that brings a gradient of this norm down to max_norm: min(1, max_norm / norm); 1 when
/// max_norm is 0 (off).
double clip_factor(double norm, double max_norm);

}  // namespace smelt
