// Each operation is one pass; arithmetic in acc_t of the dtype, one rounding on the way out.
#include "tensor/kernels/elementwise.h"

#include <algorithm>
#include <vector>

#include "tensor/cpu/simd.h"

namespace smelt::kernels::cpu {
namespace {

template <typename T, typename F>
void map(const Tensor& x, const Tensor& out, F f) {
  const T* a = x.data<T>();
  T* o = out.data<T>();
  const int64_t n = x.numel();
#pragma omp parallel for simd schedule(static) if (n > kParallelGrain)
  for (int64_t i = 0; i < n; ++i) o[i] = round_to<T>(f(acc_t<T>(a[i])));
}

template <typename T, typename F>
void map(const Tensor& x, const Tensor& y, const Tensor& out, F f) {
  const T* a = x.data<T>();
  const T* b = y.data<T>();
  T* o = out.data<T>();
  const int64_t n = x.numel();
#pragma omp parallel for simd schedule(static) if (n > kParallelGrain)
  for (int64_t i = 0; i < n; ++i) o[i] = round_to<T>(f(acc_t<T>(a[i]), acc_t<T>(b[i])));
}

template <typename T, typename S>
void accumulate(const Tensor& x, const Tensor& y, double alpha) {
  using A = std::conditional_t<std::is_same_v<S, double>, double, acc_t<T>>;
  T* a = x.data<T>();
  const S* b = y.data<S>();
  const int64_t n = x.numel();
  const A factor = A(alpha);
#pragma omp parallel for simd schedule(static) if (n > kParallelGrain)
  for (int64_t i = 0; i < n; ++i) a[i] = round_to<T>(acc_t<T>(A(a[i]) + factor * A(b[i])));
}

/// Sum of f(x) in double. Blocks have a fixed size and are added in order, so the result depends on
/// the data alone.
template <typename T, typename F>
double reduce(const Tensor& x, F f) {
  constexpr int64_t kBlock = 16384;
  const T* a = x.data<T>();
  const int64_t n = x.numel();
  std::vector<double> partial(size_t((n + kBlock - 1) / kBlock));
#pragma omp parallel for schedule(static) if (n > kParallelGrain)
  for (int64_t b = 0; b < int64_t(partial.size()); ++b) {
    const int64_t end = std::min(n, (b + 1) * kBlock);
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = b * kBlock; i < end; ++i) total += f(double(acc_t<T>(a[i])));
    partial[size_t(b)] = total;
  }
  double total = 0;
  for (const double p : partial) total += p;
  return total;
}

}  // namespace

void add_scaled(const Tensor& x, const Tensor& y, double alpha, const Tensor& out) {
  dispatch_float(x.dtype(), "add_scaled", [&](auto tag) {
    using A = acc_t<decltype(tag)>;
    map<decltype(tag)>(x, y, out, [factor = A(alpha)](A a, A b) { return a + factor * b; });
  });
}

void add_scaled_in_place(const Tensor& x, const Tensor& y, double alpha) {
  dispatch_float(x.dtype(), "add_scaled_", [&](auto t) {
    dispatch_float(y.dtype(), "add_scaled_",
                   [&](auto s) { accumulate<decltype(t), decltype(s)>(x, y, alpha); });
  });
}

void mul(const Tensor& x, const Tensor& y, const Tensor& out) {
  dispatch_float(x.dtype(), "mul", [&](auto tag) {
    using A = acc_t<decltype(tag)>;
    map<decltype(tag)>(x, y, out, [](A a, A b) { return a * b; });
  });
}

void scale(const Tensor& x, double alpha, const Tensor& out) {
  dispatch_float(x.dtype(), "scale", [&](auto tag) {
    using A = acc_t<decltype(tag)>;
    map<decltype(tag)>(x, out, [factor = A(alpha)](A a) { return factor * a; });
  });
}

void clamp(const Tensor& x, double limit, const Tensor& out) {
  dispatch_float(x.dtype(), "clamp", [&](auto tag) {
    using A = acc_t<decltype(tag)>;
    map<decltype(tag)>(x, out, [c = A(limit)](A a) { return a > c ? c : a < -c ? -c : a; });
  });
}

void clamp_backward(const Tensor& dy, const Tensor& x, double limit, const Tensor& dx) {
  dispatch_float(x.dtype(), "clamp_backward", [&](auto tag) {
    using A = acc_t<decltype(tag)>;
    map<decltype(tag)>(dy, x, dx, [c = A(limit)](A g, A a) { return a > c || a < -c ? A(0) : g; });
  });
}

void sum(const Tensor& x, const Tensor& out) {
  *out.data<double>() = dispatch_float(x.dtype(), "sum", [&](auto tag) {
    return reduce<decltype(tag)>(x, [](double v) { return v; });
  });
}

void sum_squares(const Tensor& x, const Tensor& out) {
  *out.data<double>() = dispatch_float(x.dtype(), "sum_squares", [&](auto tag) {
    return reduce<decltype(tag)>(x, [](double v) { return v * v; });
  });
}

}  // namespace smelt::kernels::cpu
