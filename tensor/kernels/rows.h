// Private to tensor/: moving rows. Indices are checked; an undefined `weights` stands for ones.
#pragma once

#include "tensor/kernels/kernels.h"

SMELT_KERNEL(gather_rows, const Tensor& x, const Tensor& index, const Tensor& weights,
             const Tensor& out)
SMELT_KERNEL(combine_rows, const Tensor& rows, const Tensor& row_of_slot, const Tensor& weights,
             const Tensor& out)
SMELT_KERNEL(combine_weights_grad, const Tensor& dy, const Tensor& rows, const Tensor& row_of_slot,
             const Tensor& out)
SMELT_KERNEL(scatter_add_rows, const Tensor& target, const Tensor& index, const Tensor& rows,
             double alpha)
