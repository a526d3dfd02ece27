// Private to tensor/: checks that several operations share beyond those of tensor.h.
#pragma once

#include "tensor/kernels/kernels.h"

/// Sets *position to the first element of index [any shape] i32 outside [0, limit), or to -1.
SMELT_KERNEL(find_out_of_range, const Tensor& index, int64_t limit, int64_t* position)

namespace smelt {

/// x is f32, bf16 or f64; else DTypeError.
void check_floating(const char* op, const char* name, const Tensor& x);
/// x is f32 or f64 (statistics, weights, scores); else DTypeError.
void check_full_precision(const char* op, const char* name, const Tensor& x);
/// Same device; else DeviceError.
void check_same_device(const char* op, const Tensor& x, const Tensor& y);
/// index is i32 on the device of `like` and every element is in [0, limit); else DTypeError,
/// DeviceError, or ShapeError naming the first bad element. Any strides.
void check_indices(const char* op, const char* name, const Tensor& index, int64_t limit,
                   const Tensor& like);

}  // namespace smelt
