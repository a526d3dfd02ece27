#include "autograd/experts.h"

#include <numeric>

#include "autograd/routing.h"
#include "tensor/activation.h"
#include "tensor/gemm.h"
#include "tensor/rows.h"

namespace smelt {
namespace {

/// 0, 1, ... n - 1: each row to itself.
Tensor identity(int64_t n) {
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return Tensor::from(rows);
}

}  // namespace

Variable routed_linear(const Variable& x, const Variable& weight, const Routes& routes) {
  check_rank("routed_linear", "weight", weight.data(), 3);
  const Tensor y = grouped_matmul(gather_rows(x.data(), routes.token_of_row),
                                  weight.data().transpose(1, 2), routes.offsets);
  return record("routed_linear", y, {x, weight}, [x, weight, routes](const std::vector<Tensor>& g) {
    std::vector<Tensor> grads(2);
    const Tensor dy = g[0].contiguous();
    if (weight.requires_grad()) {
      const GradSink sink(weight);
      grouped_outer_(sink.buffer(), dy, gather_rows(x.data(), routes.token_of_row), routes.offsets);
      grads[1] = sink.result();
    }
    if (x.requires_grad())
      grads[0] =
          combine_rows(grouped_matmul(dy, weight.data(), routes.offsets), routes.row_of_slot);
    return grads;
  });
}

Variable routed_swiglu_linear(const Variable& gate_up, const Variable& weight,
                              const Variable& weights, const Routes& routes) {
  check_rank("routed_swiglu_linear", "weight", weight.data(), 3);
  const Tensor y = combine_rows(
      grouped_matmul(swiglu(gate_up.data()), weight.data().transpose(1, 2), routes.offsets),
      routes.row_of_slot, weights.data());
  return record("routed_swiglu_linear", y, {gate_up, weight, weights},
                [gate_up, weight, weights, routes](const std::vector<Tensor>& g) {
                  std::vector<Tensor> grads(3);
                  const int64_t n = routes.token_of_row.numel();
                  const Tensor slots = routes.row_of_slot.reshape({n}), self = identity(n);
                  const Tensor weight_of_row = weights_by_row(weights.data(), routes.row_of_slot);
                  Tensor h = swiglu(gate_up.data());
                  Tensor dy_rows = gather_rows(g[0], routes.token_of_row);
                  if (weight.requires_grad()) {
                    const GradSink sink(weight);
                    grouped_outer_(sink.buffer(), dy_rows, gather_rows(h, self, weight_of_row),
                                   routes.offsets);
                    grads[1] = sink.result();
                  }
                  if (!gate_up.requires_grad() && !weights.requires_grad()) return grads;
                  Tensor u = grouped_matmul(dy_rows, weight.data(), routes.offsets);
                  dy_rows = Tensor();
                  if (weights.requires_grad()) {
                    const Tensor dots = combine_weights_grad(u, h, self.view({n, 1}));
                    grads[2] = gather_rows(dots, slots).view(weights.shape());
                  }
                  h = Tensor();
                  if (!gate_up.requires_grad()) return grads;
                  u = gather_rows(u, self, weight_of_row);
                  grads[0] = swiglu_backward(u, gate_up.data());
                  return grads;
                });
}

}  // namespace smelt
