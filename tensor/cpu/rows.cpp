// Rows are moved in parallel over the rows of the result, so every sum has one owner and one order.
#include "tensor/kernels/rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor/cpu/simd.h"

namespace smelt::kernels::cpu {
namespace {

template <typename T>
void gather_weighted(const Tensor& x, const Tensor& index, const Tensor& weights,
                     const Tensor& out) {
  using A = acc_t<T>;
  const int64_t rows = out.dim(0), width = out.dim(1);
  const T* xs = x.data<T>();
  const int32_t* from = index.data<int32_t>();
  const A* w = weights.data<A>();
  T* outs = out.data<T>();
#pragma omp parallel for schedule(static) if (out.numel() > kParallelGrain)
  for (int64_t i = 0; i < rows; ++i) {
    const T* source = xs + from[i] * width;
    T* target = outs + i * width;
    const A weight = w[i];
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) target[c] = round_to<T>(weight * A(source[c]));
  }
}

void gather_plain(const Tensor& x, const Tensor& index, const Tensor& out) {
  const int64_t rows = out.dim(0);
  const int64_t row_bytes = out.dim(1) * size_of(out.dtype());
  const char* xs = static_cast<const char*>(x.raw());
  const int32_t* from = index.data<int32_t>();
  char* outs = static_cast<char*>(out.raw());
#pragma omp parallel for schedule(static) if (out.numel() > kParallelGrain)
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(outs + i * row_bytes, xs + from[i] * row_bytes, size_t(row_bytes));
  }
}

template <typename T>
void combine(const Tensor& rows, const Tensor& row_of_slot, const Tensor& weights,
             const Tensor& out) {
  using A = acc_t<T>;
  constexpr int64_t kColumns = 512;  // accumulators of one stretch of columns stay in cache
  const int64_t tokens = row_of_slot.dim(0), slots = row_of_slot.dim(1), width = out.dim(1);
  const T* from = rows.data<T>();
  const int32_t* row = row_of_slot.data<int32_t>();
  const A* w = weights.defined() ? weights.data<A>() : nullptr;
  T* outs = out.data<T>();
#pragma omp parallel for schedule(static) if (out.numel() > kParallelGrain)
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t begin = 0; begin < width; begin += kColumns) {
      const int64_t count = std::min(kColumns, width - begin);
      A total[kColumns];
      std::fill_n(total, count, A(0));
      for (int64_t k = 0; k < slots; ++k) {
        const T* source = from + row[t * slots + k] * width + begin;
        const A weight = w != nullptr ? w[t * slots + k] : A(1);
#pragma omp simd
        for (int64_t c = 0; c < count; ++c) total[c] += weight * A(source[c]);
      }
      T* target = outs + t * width + begin;
#pragma omp simd
      for (int64_t c = 0; c < count; ++c) target[c] = round_to<T>(total[c]);
    }
  }
}

template <typename T>
void weights_grad(const Tensor& dy, const Tensor& rows, const Tensor& row_of_slot,
                  const Tensor& out) {
  using A = acc_t<T>;
  const int64_t slots = row_of_slot.numel(), width = dy.dim(1), top_k = row_of_slot.dim(1);
  const T* dys = dy.data<T>();
  const T* from = rows.data<T>();
  const int32_t* row = row_of_slot.data<int32_t>();
  A* outs = out.data<A>();
#pragma omp parallel for schedule(static) if (slots * width > kParallelGrain)
  for (int64_t s = 0; s < slots; ++s) {
    const T* d = dys + s / top_k * width;
    const T* source = from + row[s] * width;
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < width; ++c) dot += A(d[c]) * A(source[c]);
    outs[s] = dot;
  }
}

/// Source rows ordered by the target row they go to; stable.
struct ByTarget {
  std::vector<int64_t> order;    // source rows
  std::vector<int64_t> targets;  // target rows that receive something, ascending
  std::vector<int64_t> begins;   // targets.size() + 1 positions in order
};

ByTarget order_by_target(const int32_t* index, int64_t n, int64_t num_targets) {
  std::vector<int64_t> next(size_t(num_targets), 0);
  for (int64_t i = 0; i < n; ++i) ++next[size_t(index[i])];
  ByTarget result;
  int64_t position = 0;
  for (int64_t v = 0; v < num_targets; ++v) {
    const int64_t count = next[size_t(v)];
    if (count == 0) continue;
    result.targets.push_back(v);
    result.begins.push_back(position);
    next[size_t(v)] = position;
    position += count;
  }
  result.begins.push_back(position);
  result.order.resize(size_t(n));
  for (int64_t i = 0; i < n; ++i) result.order[size_t(next[size_t(index[i])]++)] = i;
  return result;
}

template <typename T, typename S>
void scatter_add(const Tensor& target, const Tensor& index, const Tensor& rows, double alpha) {
  // Columns are shared out too: one target row may receive most of the rows.
  constexpr int64_t kColumns = 256;
  const int64_t width = target.dim(1);
  const ByTarget by = order_by_target(index.data<int32_t>(), rows.dim(0), target.dim(0));
  const auto hit = int64_t(by.targets.size());
  const S* from = rows.data<S>();
  T* to = target.data<T>();
  const T factor = T(alpha);
#pragma omp parallel for collapse(2) schedule(dynamic, 16) if (rows.numel() > kParallelGrain)
  for (int64_t j = 0; j < hit; ++j) {
    for (int64_t begin = 0; begin < width; begin += kColumns) {
      const int64_t count = std::min(kColumns, width - begin);
      T* sum = to + by.targets[size_t(j)] * width + begin;
      for (int64_t i = by.begins[size_t(j)]; i < by.begins[size_t(j) + 1]; ++i) {
        const S* source = from + by.order[size_t(i)] * width + begin;
#pragma omp simd
        for (int64_t c = 0; c < count; ++c) sum[c] += factor * T(acc_t<S>(source[c]));
      }
    }
  }
}

}  // namespace

void gather_rows(const Tensor& x, const Tensor& index, const Tensor& weights, const Tensor& out) {
  if (!weights.defined()) return gather_plain(x, index, out);
  dispatch_float(x.dtype(), "gather_rows",
                 [&](auto tag) { gather_weighted<decltype(tag)>(x, index, weights, out); });
}

void combine_rows(const Tensor& rows, const Tensor& row_of_slot, const Tensor& weights,
                  const Tensor& out) {
  dispatch_float(rows.dtype(), "combine_rows",
                 [&](auto tag) { combine<decltype(tag)>(rows, row_of_slot, weights, out); });
}

void combine_weights_grad(const Tensor& dy, const Tensor& rows, const Tensor& row_of_slot,
                          const Tensor& out) {
  dispatch_float(dy.dtype(), "combine_weights_grad",
                 [&](auto tag) { weights_grad<decltype(tag)>(dy, rows, row_of_slot, out); });
}

void scatter_add_rows(const Tensor& target, const Tensor& index, const Tensor& rows, double alpha) {
  dispatch_float(rows.dtype(), "scatter_add_rows_", [&](auto tag) {
    using S = decltype(tag);
    if (target.dtype() == DType::f64) {
      scatter_add<double, S>(target, index, rows, alpha);
    } else {
      scatter_add<float, S>(target, index, rows, alpha);
    }
  });
}

}  // namespace smelt::kernels::cpu
