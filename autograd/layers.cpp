#include "autograd/layers.h"

#include "tensor/activation.h"
#include "tensor/attention.h"
#include "tensor/elementwise.h"
#include "tensor/loss.h"
#include "tensor/norm.h"
#include "tensor/rows.h"

namespace smelt {

Variable rms_norm(const Variable& x, const Variable& weight, double eps) {
  const RmsNorm forward = rms_norm(x.data(), weight.data(), eps);
  return record("rms_norm", forward.y, {x, weight},
                [x, weight, rstd = forward.rstd](const std::vector<Tensor>& g) {
                  const RmsNormGrad grad = rms_norm_backward(g[0], x.data(), weight.data(), rstd);
                  return std::vector<Tensor>{grad.dx, grad.dweight};
                });
}

std::vector<Variable> add_rms_norm(const Variable& x, const Variable& branch, double alpha,
                                   const Variable& weight, double eps) {
  const AddRmsNorm forward = add_rms_norm(x.data(), branch.data(), alpha, weight.data(), eps);
  return record(
      "add_rms_norm", {forward.sum, forward.norm.y}, {x, branch, weight},
      [sum = forward.sum, rstd = forward.norm.rstd, alpha, weight](const std::vector<Tensor>& g) {
        if (!g[1].defined()) return std::vector<Tensor>{g[0], scale(g[0], alpha), {}};
        const Tensor dsum = g[0].defined() ? g[0] : Tensor::zeros(sum.shape(), sum.options());
        const AddRmsNormGrad grad =
            add_rms_norm_backward(dsum, g[1], sum, alpha, weight.data(), rstd);
        return std::vector<Tensor>{grad.dx, grad.dbranch, grad.dweight};
      });
}

Variable rotary(const Variable& x, const Tensor& positions, const RotaryTable& table) {
  return record("rotary", rotary(x.data(), positions, table, false), {x},
                [positions, table](const std::vector<Tensor>& g) {
                  return std::vector<Tensor>{rotary(g[0], positions, table, true)};
                });
}

Variable attention(const Variable& q, const Variable& k, const Variable& v, const Tensor& begin,
                   const Tensor& end, double scale) {
  const Attention forward = attention(q.data(), k.data(), v.data(), begin, end, scale);
  return record("attention", forward.out, {q, k, v},
                [q = q.data(), k = k.data(), v = v.data(), begin, end, scale,
                 forward](const std::vector<Tensor>& g) {
                  AttentionGrad grad =
                      attention_backward(g[0], q, k, v, begin, end, scale, forward);
                  return std::vector<Tensor>{grad.dq, grad.dk, grad.dv};
                });
}

Variable swiglu(const Variable& gate_up) {
  return record("swiglu", swiglu(gate_up.data()), {gate_up},
                [gate_up = gate_up.data()](const std::vector<Tensor>& g) {
                  return std::vector<Tensor>{swiglu_backward(g[0], gate_up)};
                });
}

Variable embedding(const Variable& table, const Tensor& ids) {
  check_rank("embedding", "table", table.data(), 2);
  return record("embedding", gather_rows(table.data(), ids), {table},
                [table, ids](const std::vector<Tensor>& g) {
                  const GradSink sink(table);
                  scatter_add_rows_(sink.buffer(), ids, g[0]);
                  return std::vector<Tensor>{sink.result()};
                });
}

Variable linear_cross_entropy(const Variable& x, const Variable& weight, const Tensor& targets) {
  const bool wanted = grad_enabled() && (x.requires_grad() || weight.requires_grad());
  const LinearCrossEntropy forward = linear_cross_entropy(x.data(), weight.data(), targets, wanted);
  return record("linear_cross_entropy", sum(forward.losses), {x, weight},
                [x_wanted = x.requires_grad(), weight, dx = forward.dx,
                 dw = forward.dweight](const std::vector<Tensor>& g) {
                  const double factor = g[0].item();
                  std::vector<Tensor> grads(2);
                  if (x_wanted) grads[0] = scale(dx, factor);
                  if (weight.requires_grad()) {
                    const GradSink sink(weight);
                    add_scaled_(sink.buffer(), dw, factor);
                    grads[1] = sink.result();
                  }
                  return grads;
                });
}

}  // namespace smelt
