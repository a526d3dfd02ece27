#include "tensor/kernels/rotary.h"

#include "tensor/cpu/simd.h"

namespace smelt::kernels::cpu {
namespace {

template <typename T>
void turn(const Tensor& x, const Tensor& positions, const Tensor& cosines, const Tensor& sines,
          bool inverse, const Tensor& out) {
  using A = acc_t<T>;
  const int64_t tokens = x.dim(0), heads = x.dim(1), width = x.dim(2), half = width / 2;
  const int64_t token_stride = x.strides()[0], head_stride = x.strides()[1];
  const T* xs = x.data<T>();
  const int32_t* position = positions.data<int32_t>();
  const A* cs = cosines.data<A>();
  const A* ss = sines.data<A>();
  const A sign = inverse ? A(-1) : A(1);
  T* outs = out.data<T>();
#pragma omp parallel for schedule(static) if (x.numel() > kParallelGrain)
  for (int64_t t = 0; t < tokens; ++t) {
    const A* c = cs + position[t] * half;
    const A* s = ss + position[t] * half;
    for (int64_t h = 0; h < heads; ++h) {
      const T* from = xs + t * token_stride + h * head_stride;
      T* to = outs + (t * heads + h) * width;
#pragma omp simd
      for (int64_t j = 0; j < half; ++j) {
        const A a = A(from[j]), b = A(from[j + half]), sine = sign * s[j];
        to[j] = round_to<T>(a * c[j] - b * sine);
        to[j + half] = round_to<T>(b * c[j] + a * sine);
      }
    }
  }
}

}  // namespace

void rotary(const Tensor& x, const Tensor& positions, const Tensor& cosines, const Tensor& sines,
            bool inverse, const Tensor& out) {
  dispatch_float(x.dtype(), "rotary", [&](auto tag) {
    turn<decltype(tag)>(x, positions, cosines, sines, inverse, out);
  });
}

}  // namespace smelt::kernels::cpu
