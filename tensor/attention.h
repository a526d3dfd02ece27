// Grouped-query attention with an online softmax over blocks of keys: no S x S matrix exists.
//
// Which keys a query sees is one half-open range per query, [begin, end): causality, document masks
// and the KV cache are all such ranges, so the kernel knows none of them.
#pragma once

#include "tensor/tensor.h"

namespace smelt {

struct Attention {
  Tensor out;  // [B, Sq, A, D] like q
  Tensor lse;  // [B, A, Sq] f32 (f64 for f64): log-sum-exp of the scaled scores; -inf for no keys
};

/// out[b, i, h] = sum over j in [begin[b,i], end[b,i]) of softmax_j(scale * q[b,i,h].k[b,j,g])
/// v[b,j,g] with g = h / (A / K), the key-value head that query head h reads. An empty range gives
/// zeros.
/// @param q      [B, Sq, A, D] f32|bf16|f64
/// @param k, v   [B, Sk, K, D] same dtype; A divisible by K
/// @param begin, end  [B, Sq] i32, 0 <= begin <= end <= Sk
/// q, k and v may be views whose last two dimensions are contiguous (parts of one projection, a
/// slice of a cache). Work is skipped outside the ranges, so cost follows the sum of range lengths.
/// @throws ShapeError, DTypeError
Attention attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& begin,
                    const Tensor& end, double scale);

struct AttentionGrad {
  Tensor dq, dk, dv;  // contiguous, shapes and dtype of q, k, v
};
/// Recomputes the probabilities p from q, k and lse block by block; with d = rowsum(dout * out):
/// dv = p^T dout, ds = p * (dout v^T - d), dq = scale ds k, dk = scale ds^T q. dk and dv sum over
/// the query heads that share a key-value head.
AttentionGrad attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& begin, const Tensor& end,
                                 double scale, const Attention& forward);

}  // namespace smelt
