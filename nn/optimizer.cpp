#include "nn/optimizer.h"

#include "tensor/elementwise.h"

namespace smelt {

AdamW::AdamW(std::vector<OptimizerSpan> spans, const AdamWConfig& config)
    : spans_(std::move(spans)), config_(config) {
  for (const OptimizerSpan& span : spans_) {
    check_same_shape("AdamW", span.param, span.grad);
    m_.push_back(Tensor::zeros(span.param.shape(), span.param.options()));
    v_.push_back(Tensor::zeros(span.param.shape(), span.param.options()));
  }
}

std::vector<OptimizerSpan> AdamW::spans_of(ParameterStore& store) {
  std::vector<OptimizerSpan> spans;
  for (Parameter* parameter : store.all()) {
    const Tensor data = parameter->value.data();
    check_dtype("AdamW", parameter->name.c_str(), data, accumulation_dtype(data.dtype()));
    if (!parameter->value.grad().defined())
      parameter->value.set_grad(Tensor::zeros(data.shape(), data.options()));
    spans.push_back({data.view({-1}), parameter->value.grad().view({-1}), parameter->decay});
  }
  return spans;
}

void AdamW::step(double lr, double grad_scale) {
  ++steps_;
  for (size_t i = 0; i < spans_.size(); ++i) {
    adamw_(spans_[i].param, spans_[i].grad, m_[i], v_[i],
           {.lr = lr,
            .beta1 = config_.beta1,
            .beta2 = config_.beta2,
            .eps = config_.eps,
            .weight_decay = spans_[i].decay || config_.decay_all ? config_.weight_decay : 0.0,
            .grad_scale = grad_scale,
            .step = steps_});
  }
}

double AdamW::grad_sum_squares() const {
  double total = 0;
  for (const OptimizerSpan& span : spans_) total += sum_squares(span.grad).item();
  return total;
}

int64_t AdamW::state_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& m : m_) bytes += 2 * m.bytes();
  return bytes;
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
}

}  // namespace smelt
