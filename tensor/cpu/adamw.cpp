#include "tensor/kernels/adamw.h"

#include <cmath>

namespace smelt::kernels::cpu {
namespace {

template <typename A>
void update(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v,
            const AdamWStep& step) {
  A* p = param.data<A>();
  const A* g = grad.data<A>();
  A* ms = m.data<A>();
  A* vs = v.data<A>();
  const int64_t n = param.numel();
  const double correction1 = 1 - std::pow(step.beta1, double(step.step));
  const double correction2 = 1 - std::pow(step.beta2, double(step.step));
  const A beta1 = A(step.beta1), rest1 = A(1 - step.beta1);
  const A beta2 = A(step.beta2), rest2 = A(1 - step.beta2);
  const A grad_scale = A(step.grad_scale), eps = A(step.eps);
  const A decay = A(1 - step.lr * step.weight_decay);
  const A rate = A(step.lr / correction1), root = A(1 / std::sqrt(correction2));
#pragma omp parallel for simd schedule(static) if (n > kParallelGrain)
  for (int64_t i = 0; i < n; ++i) {
    const A gradient = grad_scale * g[i];
    const A mean = beta1 * ms[i] + rest1 * gradient;
    const A square = beta2 * vs[i] + rest2 * (gradient * gradient);
    ms[i] = mean;
    vs[i] = square;
    p[i] = decay * p[i] - rate * mean / (std::sqrt(square) * root + eps);
  }
}

}  // namespace

void adamw(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v,
           const AdamWStep& step) {
  if (param.dtype() == DType::f64) {
    update<double>(param, grad, m, v, step);
  } else {
    update<float>(param, grad, m, v, step);
  }
}

}  // namespace smelt::kernels::cpu
