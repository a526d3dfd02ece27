#include "tensor/activation.h"

#include "tensor/kernels/activation.h"
#include "tensor/kernels/checks.h"

namespace smelt {
namespace {

void check_gate_up(const char* op, const Tensor& gate_up) {
  check_rank(op, "gate_up", gate_up, 2);
  check_floating(op, "gate_up", gate_up);
  SMELT_CHECK(ShapeError, gate_up.dim(1) % 2 == 0,
              op << ": gate_up must have an even number of columns, shape is "
                 << to_string(gate_up.shape()));
}

}  // namespace

Tensor swiglu(const Tensor& gate_up) {
  check_gate_up("swiglu", gate_up);
  const Tensor out = Tensor::empty({gate_up.dim(0), gate_up.dim(1) / 2}, gate_up.options());
  SMELT_DISPATCH(gate_up.device(), swiglu, gate_up.contiguous(), out);
  return out;
}

Tensor swiglu_backward(const Tensor& dy, const Tensor& gate_up) {
  check_gate_up("swiglu_backward", gate_up);
  check_defined("swiglu_backward", "dy", dy);
  SMELT_CHECK(ShapeError, dy.shape() == Shape({gate_up.dim(0), gate_up.dim(1) / 2}),
              "swiglu_backward: dy " << to_string(dy.shape())
                                     << " must have half the columns of gate_up "
                                     << to_string(gate_up.shape()));
  check_same_options("swiglu_backward", dy, gate_up);
  const Tensor dgate_up = Tensor::empty(gate_up.shape(), gate_up.options());
  SMELT_DISPATCH(dy.device(), swiglu_backward, dy.contiguous(), gate_up.contiguous(), dgate_up);
  return dgate_up;
}

}  // namespace smelt
