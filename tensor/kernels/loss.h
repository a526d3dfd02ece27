// Private to tensor/: fused projection and cross-entropy.
#pragma once

#include "tensor/kernels/kernels.h"
#include "tensor/loss.h"

// Every element of the losses, and of dx and dweight where defined, is written.
namespace smelt {
inline double bytes_of(const LinearCrossEntropy& r) {
  return bytes_of(r.losses) + bytes_of(r.dx) + bytes_of(r.dweight);
}
}  // namespace smelt

SMELT_KERNEL(linear_cross_entropy, const Tensor& x, const Tensor& weight, const Tensor& targets,
             const LinearCrossEntropy& result)
