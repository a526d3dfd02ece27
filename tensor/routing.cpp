#include "tensor/routing.h"

#include <limits>

#include "tensor/kernels/checks.h"
#include "tensor/kernels/routing.h"

namespace smelt {
namespace {

void check_scores(const char* op, const char* name, const Tensor& x) {
  check_rank(op, name, x, 2);
  check_full_precision(op, name, x);
}

/// probs [T, E] and indices [T, K] of the same tokens, every index below E.
void check_chosen(const char* op, const Tensor& probs, const Tensor& indices) {
  check_scores(op, "probs", probs);
  check_rank(op, "indices", indices, 2);
  SMELT_CHECK(ShapeError, probs.dim(0) == indices.dim(0),
              op << ": probs " << to_string(probs.shape()) << " and indices "
                 << to_string(indices.shape()) << " differ in tokens");
  check_indices(op, "indices", indices, probs.dim(1), probs);
}

void check_segments(const char* op, int64_t tokens, int64_t segments) {
  SMELT_CHECK(
      ShapeError, segments > 0 && tokens % segments == 0,
      op << ": " << tokens << " tokens do not divide into " << segments << " equal segments");
}

void check_load(const char* op, const Tensor& load) {
  check_rank(op, "load", load, 2);
  check_dtype(op, "load", load, DType::f64);
}

}  // namespace

Tensor softmax(const Tensor& x) {
  check_scores("softmax", "x", x);
  const Tensor out = Tensor::empty(x.shape(), x.options());
  SMELT_DISPATCH(x.device(), softmax, x.contiguous(), out);
  return out;
}

Tensor softmax_backward(const Tensor& dy, const Tensor& probs) {
  check_scores("softmax_backward", "probs", probs);
  check_defined("softmax_backward", "dy", dy);
  check_same_shape("softmax_backward", dy, probs);
  check_same_options("softmax_backward", dy, probs);
  const Tensor dx = Tensor::empty(probs.shape(), probs.options());
  SMELT_DISPATCH(dy.device(), softmax_backward, dy.contiguous(), probs.contiguous(), dx);
  return dx;
}

Tensor topk(const Tensor& scores, int64_t k, const Tensor& bias) {
  check_scores("topk", "scores", scores);
  SMELT_CHECK(ShapeError, 1 <= k && k <= scores.dim(1),
              "topk: k must be in [1, " << scores.dim(1) << "] for scores "
                                        << to_string(scores.shape()) << ", is " << k);
  if (bias.defined()) {
    check_shape("topk", "bias", bias, {scores.dim(1)});
    check_same_options("topk", bias, scores);
  }
  const Tensor out = Tensor::empty({scores.dim(0), k}, {DType::i32, scores.device()});
  SMELT_DISPATCH(scores.device(), topk, scores.contiguous(),
                 bias.defined() ? bias.contiguous() : bias, out);
  return out;
}

Tensor topk_weights(const Tensor& probs, const Tensor& indices, bool normalize) {
  check_chosen("topk_weights", probs, indices);
  const Tensor out = Tensor::empty(indices.shape(), probs.options());
  SMELT_DISPATCH(probs.device(), topk_weights, probs.contiguous(), indices.contiguous(), normalize,
                 out);
  return out;
}

Tensor topk_weights_backward(const Tensor& dweights, const Tensor& probs, const Tensor& indices,
                             bool normalize) {
  check_chosen("topk_weights_backward", probs, indices);
  check_shape("topk_weights_backward", "dweights", dweights, indices.shape());
  check_same_options("topk_weights_backward", dweights, probs);
  const Tensor dprobs = Tensor::empty(probs.shape(), probs.options());
  SMELT_DISPATCH(probs.device(), topk_weights_backward, dweights.contiguous(), probs.contiguous(),
                 indices.contiguous(), normalize, dprobs);
  return dprobs;
}

Tensor expert_counts(const Tensor& indices, int64_t num_experts, int64_t segments) {
  check_rank("expert_counts", "indices", indices, 2);
  check_segments("expert_counts", indices.dim(0), segments);
  check_indices("expert_counts", "indices", indices, num_experts, indices);
  const Tensor out = Tensor::empty({segments, num_experts}, {DType::f64, indices.device()});
  SMELT_DISPATCH(indices.device(), expert_counts, indices.contiguous(), out);
  return out;
}

Tensor segment_dot(const Tensor& probs, const Tensor& load) {
  check_scores("segment_dot", "probs", probs);
  check_load("segment_dot", load);
  check_same_device("segment_dot", probs, load);
  SMELT_CHECK(ShapeError, probs.dim(1) == load.dim(1),
              "segment_dot: probs " << to_string(probs.shape()) << " and load "
                                    << to_string(load.shape()) << " differ in experts");
  check_segments("segment_dot", probs.dim(0), load.dim(0));
  const Tensor out = Tensor::empty({1}, {DType::f64, probs.device()});
  SMELT_DISPATCH(probs.device(), segment_dot, probs.contiguous(), load.contiguous(), out);
  return out;
}

Tensor expand_segments(const Tensor& load, int64_t tokens, double factor, DType dtype) {
  check_load("expand_segments", load);
  SMELT_CHECK(DTypeError, is_floating(dtype),
              "expand_segments: dtype must be f32, bf16 or f64, is " << dtype);
  check_segments("expand_segments", tokens, load.dim(0));
  const Tensor out = Tensor::empty({tokens, load.dim(1)}, {dtype, load.device()});
  SMELT_DISPATCH(load.device(), expand_segments, load.contiguous(), factor, out);
  return out;
}

ZLoss router_z_loss(const Tensor& logits) {
  check_scores("router_z_loss", "logits", logits);
  const ZLoss result = {Tensor::zeros({1}, {DType::f64, logits.device()}),
                        Tensor::empty(logits.shape(), logits.options())};
  if (logits.numel() == 0) return result;
  SMELT_DISPATCH(logits.device(), router_z_loss, logits.contiguous(), result.sum, result.gradient);
  return result;
}

SlotOrder sort_slots(const Tensor& indices, int64_t num_experts) {
  check_rank("sort_slots", "indices", indices, 2);
  SMELT_CHECK(ShapeError, num_experts >= 0,
              "sort_slots: num_experts must not be negative, is " << num_experts);
  SMELT_CHECK(ShapeError, indices.numel() <= std::numeric_limits<int32_t>::max(),
              "sort_slots: indices " << to_string(indices.shape())
                                     << " has more slots than 32-bit row numbers hold");
  check_indices("sort_slots", "indices", indices, num_experts, indices);
  const TensorOptions options = {DType::i32, indices.device()};
  SlotOrder order = {Tensor::empty(indices.shape(), options),
                     Tensor::empty({indices.numel()}, options),
                     std::vector<int64_t>(size_t(num_experts), 0)};
  SMELT_DISPATCH(indices.device(), sort_slots, indices.contiguous(), num_experts, order.row_of_slot,
                 order.token_of_row, order.tokens_per_expert.data());
  return order;
}

}  // namespace smelt
