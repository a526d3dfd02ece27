// Fused output projection and cross-entropy. Logits exist for a bounded block of tokens at a time
// and are turned into their gradient in place, so nothing of size T x V is ever held.
#pragma once

#include "tensor/tensor.h"

namespace smelt {

struct LinearCrossEntropy {
  Tensor losses;   // [T] f32 (f64 for f64): -log softmax(x w^T)[target], 0 where target is -1
  Tensor dx;       // [T, H] like x: gradient of the sum of losses; undefined unless asked for
  Tensor dweight;  // [V, H] f32 (f64 for f64): likewise
};

/// Tokens whose logits (of this dtype) are held at a time, out of `tokens`. They stay within 16
/// MiB, but blocks have no fewer than 64 tokens: logits of more than 65,536 words take 256 bytes a
/// word. For bf16 their gradient lies beside them, in half of that again.
int64_t loss_block_tokens(int64_t tokens, int64_t vocab_size, DType dtype);

/// x [T, H] f32|bf16|f64, weight [V, H] same dtype, targets [T] i32 in [-1, V), -1 = no target.
/// Softmax and losses in f32. With want_grad the gradients of sum(losses) are computed on the way.
/// Tokens without target cost no product.
/// @throws ShapeError (also for a target out of range, naming it), DTypeError
LinearCrossEntropy linear_cross_entropy(const Tensor& x, const Tensor& weight,
                                        const Tensor& targets, bool want_grad);

}  // namespace smelt
