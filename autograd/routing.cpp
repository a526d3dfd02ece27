#include "autograd/routing.h"

#include "tensor/elementwise.h"
#include "tensor/rows.h"

namespace smelt {

Variable softmax(const Variable& x) {
  const Tensor probs = softmax(x.data());
  return record("softmax", probs, {x}, [probs](const std::vector<Tensor>& g) {
    return std::vector<Tensor>{softmax_backward(g[0], probs)};
  });
}

Variable topk_weights(const Variable& probs, const Tensor& indices, bool normalize) {
  return record(
      "topk_weights", topk_weights(probs.data(), indices, normalize), {probs},
      [probs = probs.data(), indices, normalize](const std::vector<Tensor>& g) {
        return std::vector<Tensor>{topk_weights_backward(g[0], probs, indices, normalize)};
      });
}

Variable segment_dot(const Variable& probs, const Tensor& load, double factor) {
  return record(
      "segment_dot", scale(segment_dot(probs.data(), load), factor), {probs},
      [load, factor, tokens = probs.dim(0), dtype = probs.dtype()](const std::vector<Tensor>& g) {
        return std::vector<Tensor>{expand_segments(load, tokens, factor * g[0].item(), dtype)};
      });
}

Variable router_z_loss(const Variable& logits, double factor) {
  const ZLoss forward = router_z_loss(logits.data());
  return record("router_z_loss", scale(forward.sum, factor), {logits},
                [gradient = forward.gradient, factor](const std::vector<Tensor>& g) {
                  return std::vector<Tensor>{scale(gradient, factor * g[0].item())};
                });
}

Tensor weights_by_row(const Tensor& weights, const Tensor& row_of_slot) {
  // Each row belongs to one slot, so adding to zeros places the weights by row.
  const int64_t n = row_of_slot.numel();
  const Tensor by_row = Tensor::zeros({n, 1}, weights.options());
  scatter_add_rows_(by_row, row_of_slot.reshape({n}), weights.reshape({n, 1}));
  return by_row.view({n});
}

Variable permute_rows(const Variable& x, const Tensor& token_of_row, const Tensor& row_of_slot) {
  return record("permute_rows", gather_rows(x.data(), token_of_row), {x},
                [row_of_slot](const std::vector<Tensor>& g) {
                  return std::vector<Tensor>{combine_rows(g[0], row_of_slot)};
                });
}

Variable combine_rows(const Variable& rows, const Variable& weights, const Tensor& token_of_row,
                      const Tensor& row_of_slot) {
  return record(
      "combine_rows", combine_rows(rows.data(), row_of_slot, weights.data()), {rows, weights},
      [rows, weights, token_of_row, row_of_slot](const std::vector<Tensor>& g) {
        std::vector<Tensor> grads(2);
        if (rows.requires_grad())
          grads[0] = gather_rows(g[0], token_of_row, weights_by_row(weights.data(), row_of_slot));
        if (weights.requires_grad())
          grads[1] = combine_weights_grad(g[0], rows.data(), row_of_slot);
        return grads;
      });
}

}  // namespace smelt
