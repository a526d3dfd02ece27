// Private to tensor/: grouped-query attention.
#pragma once

#include "tensor/attention.h"
#include "tensor/kernels/kernels.h"

// q, k, v: last two dimensions contiguous. The rest contiguous. Every element of the results is
// written; rows of k and v in no query's range are not used, whatever they hold.
namespace smelt {
inline double bytes_of(const Attention& a) { return bytes_of(a.out) + bytes_of(a.lse); }
inline double bytes_of(const AttentionGrad& g) {
  return bytes_of(g.dq) + bytes_of(g.dk) + bytes_of(g.dv);
}
}  // namespace smelt

SMELT_KERNEL(attention_forward, const Tensor& q, const Tensor& k, const Tensor& v,
             const Tensor& begin, const Tensor& end, double scale, const Attention& result)
SMELT_KERNEL(attention_backward, const Tensor& dout, const Tensor& q, const Tensor& k,
             const Tensor& v, const Tensor& begin, const Tensor& end, double scale,
             const Attention& forward, const AttentionGrad& grad)
