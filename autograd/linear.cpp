#include "autograd/linear.h"

#include "tensor/gemm.h"

namespace smelt {
namespace {

Variable linear_into(const char* name, const Variable& x, const Variable& weight, DType out_dtype) {
  check_rank(name, "x", x.data(), 2);
  check_rank(name, "weight", weight.data(), 2);
  SMELT_CHECK(ShapeError, x.dim(1) == weight.dim(1),
              name << ": x " << to_string(x.shape()) << " does not fit weight "
                   << to_string(weight.shape()) << " (last dimensions must be equal)");
  check_same_options(name, x.data(), weight.data());
  const Tensor y = Tensor::empty({x.dim(0), weight.dim(0)}, {out_dtype, x.data().device()});
  matmul_(y, x.data(), weight.data().transpose(0, 1), 1, 0);
  return record(name, y, {x, weight}, [x, weight](const std::vector<Tensor>& g) {
    const Tensor dy = g[0].to(x.dtype());
    std::vector<Tensor> grads(2);
    if (x.requires_grad()) grads[0] = matmul(dy, weight.data());
    if (weight.requires_grad()) {
      const GradSink sink(weight);
      matmul_(sink.buffer(), dy.transpose(0, 1), x.data(), 1, 1);
      grads[1] = sink.result();
    }
    return grads;
  });
}

}  // namespace

Variable linear(const Variable& x, const Variable& weight) {
  return linear_into("linear", x, weight, x.dtype());
}

Variable linear_f32(const Variable& x, const Variable& weight) {
  return linear_into("linear_f32", x, weight, accumulation_dtype(x.dtype()));
}

Variable grouped_linear(const Variable& x, const Variable& weight,
                        const std::vector<int64_t>& offsets) {
  check_rank("grouped_linear", "weight", weight.data(), 3);
  const Tensor y = grouped_matmul(x.data(), weight.data().transpose(1, 2), offsets);
  return record("grouped_linear", y, {x, weight},
                [x, weight, offsets](const std::vector<Tensor>& g) {
                  std::vector<Tensor> grads(2);
                  const Tensor dy = g[0].contiguous();
                  if (x.requires_grad()) grads[0] = grouped_matmul(dy, weight.data(), offsets);
                  if (weight.requires_grad()) {
                    const GradSink sink(weight);
                    grouped_outer_(sink.buffer(), dy, x.data(), offsets);
                    grads[1] = sink.result();
                  }
                  return grads;
                });
}

}  // namespace smelt
