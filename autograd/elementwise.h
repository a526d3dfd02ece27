// Differentiable elementwise functions, sums and views. Shapes, dtypes and errors are those of
// tensor/elementwise.h and the views of tensor/tensor.h.
#pragma once

#include <vector>

#include "autograd/variable.h"

namespace smelt {

/// x + alpha * y. Gradient: dy to x, alpha * dy to y.
Variable add_scaled(const Variable& x, const Variable& y, double alpha = 1.0);
/// x * y elementwise.
Variable mul(const Variable& x, const Variable& y);
/// alpha * x.
Variable scale(const Variable& x, double alpha);
/// x moved into [-limit, limit]. Gradient: dy where |x| <= limit. Saves x.
Variable clamp(const Variable& x, double limit);
/// Sum of all elements, [1] f64.
Variable sum(const Variable& x);
/// x in another floating dtype; the gradient is converted back.
Variable cast(const Variable& x, DType dtype);

/// Same elements in another shape; copies only when x is not contiguous.
Variable reshape(const Variable& x, Shape shape);
Variable transpose(const Variable& x, int64_t d0, int64_t d1);
/// Views of consecutive runs of columns of x [T, N]; sizes sum to N. One node: the gradients come
/// together in one buffer.
std::vector<Variable> split_columns(const Variable& x, const std::vector<int64_t>& sizes);
/// Rows of all parts below each other; parts [T_i, N].
Variable concat_rows(const std::vector<Variable>& parts);

}  // namespace smelt
