#include "tensor/loss.h"

#include <algorithm>

#include "tensor/flop_counter.h"
#include "tensor/kernels/loss.h"

namespace smelt {

int64_t loss_block_tokens(int64_t tokens, int64_t vocab_size, DType dtype) {
  // 16 MiB is about what a last-level cache holds, so that the passes over the logits do not go to
  // memory. Each block streams W twice and dweight once, however: below 64 tokens that traffic
  // costs more than larger logits do. Above 1024 nothing is gained.
  constexpr int64_t kLogitBytes = int64_t{16} << 20;
  constexpr int64_t kMinTokens = 64, kMaxTokens = 1024;
  const int64_t fitting = kLogitBytes / (vocab_size * size_of(dtype));
  return std::min(tokens, std::clamp(fitting, kMinTokens, kMaxTokens));
}

LinearCrossEntropy linear_cross_entropy(const Tensor& x, const Tensor& weight,
                                        const Tensor& targets, bool want_grad) {
  constexpr const char* op = "linear_cross_entropy";
  check_rank(op, "x", x, 2);
  check_rank(op, "weight", weight, 2);
  check_same_options(op, x, weight);
  SMELT_CHECK(DTypeError, is_floating(x.dtype()),
              op << ": dtype must be f32, bf16 or f64, not " << name_of(x.dtype()));
  SMELT_CHECK(ShapeError, x.dim(1) == weight.dim(1),
              op << ": x " << to_string(x.shape()) << " and weight " << to_string(weight.shape())
                 << " must have the same number of columns");
  check_shape(op, "targets", targets, {x.dim(0)});
  check_dtype(op, "targets", targets, DType::i32);
  SMELT_CHECK(DeviceError, targets.device() == x.device(),
              op << ": targets are on " << targets.device() << ", x on " << x.device());
  const Tensor target = targets.contiguous();
  if (target.device().is_cpu()) {
    const int32_t* const t = target.data<int32_t>();
    for (int64_t i = 0; i < target.numel(); ++i) {
      SMELT_CHECK(ShapeError, t[i] >= -1 && t[i] < weight.dim(0),
                  op << ": target " << t[i] << " of token " << i << " is outside [-1, "
                     << weight.dim(0) << ")");
    }
  }
  const TensorOptions accumulation{accumulation_dtype(x.dtype()), x.device()};
  const LinearCrossEntropy result{
      Tensor::empty({x.dim(0)}, accumulation),
      want_grad ? Tensor::empty(x.shape(), x.options()) : Tensor(),
      want_grad ? Tensor::empty(weight.shape(), accumulation) : Tensor()};
  const Tensor hidden = x.contiguous(), matrix = weight.contiguous();
  if (FlopCounter::counting()) {
    const auto ids = target.to_vector<int32_t>();
    const auto tokens = std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id >= 0; });
    FlopCounter::add_products((want_grad ? 6.0 : 2.0) * double(tokens) * double(weight.numel()));
  }
  SMELT_DISPATCH(x.device(), linear_cross_entropy, hidden, matrix, target, result);
  return result;
}

}  // namespace smelt
