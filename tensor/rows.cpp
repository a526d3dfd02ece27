#include "tensor/rows.h"

#include "tensor/kernels/checks.h"
#include "tensor/kernels/rows.h"

namespace smelt {
namespace {

/// Optional weights: of this shape, in the accumulation dtype of x, on its device.
void check_weights(const char* op, const Tensor& weights, const Shape& shape, const Tensor& x) {
  if (!weights.defined()) return;
  check_floating(op, "x with weights", x);
  check_shape(op, "weights", weights, shape);
  check_dtype(op, "weights", weights, accumulation_dtype(x.dtype()));
  check_same_device(op, weights, x);
}

Tensor dense(const Tensor& x) { return x.defined() ? x.contiguous() : x; }

}  // namespace

Tensor gather_rows(const Tensor& x, const Tensor& index, const Tensor& weights) {
  check_rank("gather_rows", "x", x, 2);
  check_rank("gather_rows", "index", index, 1);
  check_weights("gather_rows", weights, index.shape(), x);
  check_indices("gather_rows", "index", index, x.dim(0), x);
  const Tensor out = Tensor::empty({index.dim(0), x.dim(1)}, x.options());
  if (out.numel() == 0) return out;
  SMELT_DISPATCH(x.device(), gather_rows, x.contiguous(), index.contiguous(), dense(weights), out);
  return out;
}

Tensor combine_rows(const Tensor& rows, const Tensor& row_of_slot, const Tensor& weights) {
  check_rank("combine_rows", "rows", rows, 2);
  check_floating("combine_rows", "rows", rows);
  check_rank("combine_rows", "row_of_slot", row_of_slot, 2);
  check_weights("combine_rows", weights, row_of_slot.shape(), rows);
  check_indices("combine_rows", "row_of_slot", row_of_slot, rows.dim(0), rows);
  const Tensor out = Tensor::empty({row_of_slot.dim(0), rows.dim(1)}, rows.options());
  SMELT_DISPATCH(rows.device(), combine_rows, rows.contiguous(), row_of_slot.contiguous(),
                 dense(weights), out);
  return out;
}

Tensor combine_weights_grad(const Tensor& dy, const Tensor& rows, const Tensor& row_of_slot) {
  check_rank("combine_weights_grad", "dy", dy, 2);
  check_floating("combine_weights_grad", "dy", dy);
  check_rank("combine_weights_grad", "rows", rows, 2);
  check_same_options("combine_weights_grad", dy, rows);
  check_rank("combine_weights_grad", "row_of_slot", row_of_slot, 2);
  SMELT_CHECK(ShapeError, dy.dim(1) == rows.dim(1) && dy.dim(0) == row_of_slot.dim(0),
              "combine_weights_grad: dy " << to_string(dy.shape())
                                          << " must have the width of rows "
                                          << to_string(rows.shape()) << " and the tokens of "
                                          << "row_of_slot " << to_string(row_of_slot.shape()));
  check_indices("combine_weights_grad", "row_of_slot", row_of_slot, rows.dim(0), rows);
  const Tensor out =
      Tensor::empty(row_of_slot.shape(), {accumulation_dtype(dy.dtype()), dy.device()});
  SMELT_DISPATCH(dy.device(), combine_weights_grad, dy.contiguous(), rows.contiguous(),
                 row_of_slot.contiguous(), out);
  return out;
}

void scatter_add_rows_(const Tensor& target, const Tensor& index, const Tensor& rows,
                       double alpha) {
  check_rank("scatter_add_rows_", "target", target, 2);
  check_full_precision("scatter_add_rows_", "target", target);
  check_rank("scatter_add_rows_", "rows", rows, 2);
  check_floating("scatter_add_rows_", "rows", rows);
  check_same_device("scatter_add_rows_", target, rows);
  SMELT_CHECK(
      ShapeError, target.is_contiguous(),
      "scatter_add_rows_: target of shape " << to_string(target.shape()) << " must be contiguous");
  SMELT_CHECK(ShapeError, target.dim(1) == rows.dim(1),
              "scatter_add_rows_: target " << to_string(target.shape()) << " and rows "
                                           << to_string(rows.shape()) << " differ in width");
  check_shape("scatter_add_rows_", "index", index, {rows.dim(0)});
  check_indices("scatter_add_rows_", "index", index, target.dim(0), target);
  if (rows.numel() == 0) return;
  SMELT_DISPATCH(target.device(), scatter_add_rows, target, index.contiguous(), rows.contiguous(),
                 alpha);
}

}  // namespace smelt
