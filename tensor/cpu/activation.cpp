#include "tensor/kernels/activation.h"

#include "tensor/cpu/simd.h"

namespace smelt::kernels::cpu {

void swiglu(const Tensor& gate_up, const Tensor& out) {
  dispatch_float(out.dtype(), "swiglu", [&](auto tag) {
    using T = decltype(tag);
    using A = acc_t<T>;
    const int64_t rows = out.dim(0), width = out.dim(1);
    const T* in = gate_up.data<T>();
    T* outs = out.data<T>();
#pragma omp parallel for schedule(static) if (out.numel() > kParallelGrain)
    for (int64_t r = 0; r < rows; ++r) {
      const T* gate = in + r * 2 * width;
      const T* up = gate + width;
      T* y = outs + r * width;
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        const A g = A(gate[c]);
        y[c] = round_to<T>(g / (A(1) + vector_exp(-g)) * A(up[c]));
      }
    }
  });
}

void swiglu_backward(const Tensor& dy, const Tensor& gate_up, const Tensor& dgate_up) {
  dispatch_float(dy.dtype(), "swiglu_backward", [&](auto tag) {
    using T = decltype(tag);
    using A = acc_t<T>;
    const int64_t rows = dy.dim(0), width = dy.dim(1);
    const T* in = gate_up.data<T>();
    const T* dys = dy.data<T>();
    T* outs = dgate_up.data<T>();
#pragma omp parallel for schedule(static) if (dy.numel() > kParallelGrain)
    for (int64_t r = 0; r < rows; ++r) {
      const T* gate = in + r * 2 * width;
      const T* up = gate + width;
      const T* d = dys + r * width;
      T* dgate = outs + r * 2 * width;
      T* dup = dgate + width;
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        const A g = A(gate[c]), sigmoid = A(1) / (A(1) + vector_exp(-g)), dyc = A(d[c]);
        dgate[c] = round_to<T>(dyc * A(up[c]) * sigmoid * (A(1) + g * (A(1) - sigmoid)));
        dup[c] = round_to<T>(dyc * g * sigmoid);
      }
    }
  });
}

}  // namespace smelt::kernels::cpu
