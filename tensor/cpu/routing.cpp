// Router arithmetic other than top-k. Sums over tokens are kept per row or per fixed block and
// added in order, so no result depends on the number of threads.
#include "tensor/kernels/routing.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tensor/cpu/simd.h"

namespace smelt::kernels::cpu {
namespace {

/// Calls f(A{}) for the f32 or f64 of a checked tensor.
template <typename F>
void dispatch_scores(const Tensor& x, F&& f) {
  if (x.dtype() == DType::f64) {
    f(double{});
  } else {
    f(float{});
  }
}

/// e[i] = exp(x[i] - max x), returning max and sum. A NaN anywhere makes the sum NaN.
template <typename A>
struct ExpRow {
  A max, sum;
};
template <typename A>
ExpRow<A> exp_row(const A* x, A* e, int64_t n) {
  A largest = -std::numeric_limits<A>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    e[i] = vector_exp(x[i] - largest);
    sum += e[i];
  }
  return {largest, sum};
}

double sum_in_order(const std::vector<double>& values) {
  double total = 0;
  for (const double v : values) total += v;
  return total;
}

}  // namespace

void softmax(const Tensor& x, const Tensor& out) {
  dispatch_scores(x, [&](auto tag) {
    using A = decltype(tag);
    const int64_t tokens = x.dim(0), experts = x.dim(1);
    const A* xs = x.data<A>();
    A* outs = out.data<A>();
#pragma omp parallel for schedule(static) if (x.numel() > kParallelGrain)
    for (int64_t t = 0; t < tokens; ++t) {
      A* p = outs + t * experts;
      const A inverse = A(1) / exp_row(xs + t * experts, p, experts).sum;
#pragma omp simd
      for (int64_t e = 0; e < experts; ++e) p[e] *= inverse;
    }
  });
}

void softmax_backward(const Tensor& dy, const Tensor& probs, const Tensor& dx) {
  dispatch_scores(dy, [&](auto tag) {
    using A = decltype(tag);
    const int64_t tokens = dy.dim(0), experts = dy.dim(1);
    const A* dys = dy.data<A>();
    const A* ps = probs.data<A>();
    A* dxs = dx.data<A>();
#pragma omp parallel for schedule(static) if (dy.numel() > kParallelGrain)
    for (int64_t t = 0; t < tokens; ++t) {
      const A* d = dys + t * experts;
      const A* p = ps + t * experts;
      A* to = dxs + t * experts;
      A dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t e = 0; e < experts; ++e) dot += d[e] * p[e];
#pragma omp simd
      for (int64_t e = 0; e < experts; ++e) to[e] = p[e] * (d[e] - dot);
    }
  });
}

void topk_weights(const Tensor& probs, const Tensor& indices, bool normalize, const Tensor& out) {
  dispatch_scores(probs, [&](auto tag) {
    using A = decltype(tag);
    const int64_t tokens = probs.dim(0), experts = probs.dim(1), top_k = indices.dim(1);
    const A* ps = probs.data<A>();
    const int32_t* chosen = indices.data<int32_t>();
    A* outs = out.data<A>();
#pragma omp parallel for schedule(static) if (out.numel() > kParallelGrain)
    for (int64_t t = 0; t < tokens; ++t) {
      const A* p = ps + t * experts;
      const int32_t* index = chosen + t * top_k;
      A* w = outs + t * top_k;
      A sum = 0;
      for (int64_t k = 0; k < top_k; ++k) sum += w[k] = p[index[k]];
      if (!normalize) continue;
      for (int64_t k = 0; k < top_k; ++k) w[k] /= sum;
    }
  });
}

void topk_weights_backward(const Tensor& dweights, const Tensor& probs, const Tensor& indices,
                           bool normalize, const Tensor& dprobs) {
  dispatch_scores(probs, [&](auto tag) {
    using A = decltype(tag);
    const int64_t tokens = probs.dim(0), experts = probs.dim(1), top_k = indices.dim(1);
    const A* dws = dweights.data<A>();
    const A* ps = probs.data<A>();
    const int32_t* chosen = indices.data<int32_t>();
    A* dps = dprobs.data<A>();
#pragma omp parallel for schedule(static) if (dprobs.numel() > kParallelGrain)
    for (int64_t t = 0; t < tokens; ++t) {
      const A* dw = dws + t * top_k;
      const A* p = ps + t * experts;
      const int32_t* index = chosen + t * top_k;
      A* dp = dps + t * experts;
      std::fill_n(dp, experts, A(0));
      // w_k = p_k / s with s the sum of the chosen p: dp_k = (dw_k - sum_j dw_j w_j) / s.
      A s = 1, mean = 0;
      if (normalize) {
        s = 0;
        for (int64_t k = 0; k < top_k; ++k) s += p[index[k]];
        for (int64_t k = 0; k < top_k; ++k) mean += dw[k] * (p[index[k]] / s);
      }
      for (int64_t k = 0; k < top_k; ++k) dp[index[k]] += (dw[k] - mean) / s;
    }
  });
}

void expert_counts(const Tensor& indices, const Tensor& out) {
  const int64_t segments = out.dim(0), experts = out.dim(1);
  const int64_t slots = indices.numel() / segments;
  const int32_t* chosen = indices.data<int32_t>();
  double* counts = out.data<double>();
#pragma omp parallel for schedule(static) if (indices.numel() > kParallelGrain)
  for (int64_t s = 0; s < segments; ++s) {
    double* count = counts + s * experts;
    std::fill_n(count, experts, 0.0);
    for (int64_t i = s * slots; i < (s + 1) * slots; ++i) count[chosen[i]] += 1;
  }
}

void segment_dot(const Tensor& probs, const Tensor& load, const Tensor& out) {
  dispatch_scores(probs, [&](auto tag) {
    using A = decltype(tag);
    const int64_t tokens = probs.dim(0), experts = probs.dim(1);
    const int64_t length = tokens / load.dim(0);
    const A* ps = probs.data<A>();
    const double* loads = load.data<double>();
    std::vector<double> rows(static_cast<size_t>(tokens));
#pragma omp parallel for schedule(static) if (probs.numel() > kParallelGrain)
    for (int64_t t = 0; t < tokens; ++t) {
      const A* p = ps + t * experts;
      const double* l = loads + t / length * experts;
      double dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t e = 0; e < experts; ++e) dot += l[e] * double(p[e]);
      rows[size_t(t)] = dot;
    }
    *out.data<double>() = sum_in_order(rows);
  });
}

void expand_segments(const Tensor& load, double factor, const Tensor& out) {
  dispatch_float(out.dtype(), "expand_segments", [&](auto tag) {
    using T = decltype(tag);
    const int64_t tokens = out.dim(0), experts = out.dim(1);
    const int64_t length = tokens / load.dim(0);
    const double* loads = load.data<double>();
    T* outs = out.data<T>();
#pragma omp parallel for schedule(static) if (out.numel() > kParallelGrain)
    for (int64_t t = 0; t < tokens; ++t) {
      const double* l = loads + t / length * experts;
      T* to = outs + t * experts;
#pragma omp simd
      for (int64_t e = 0; e < experts; ++e) to[e] = round_to<T>(acc_t<T>(factor * l[e]));
    }
  });
}

void router_z_loss(const Tensor& logits, const Tensor& sum, const Tensor& gradient) {
  dispatch_scores(logits, [&](auto tag) {
    using A = decltype(tag);
    const int64_t tokens = logits.dim(0), experts = logits.dim(1);
    const A* xs = logits.data<A>();
    A* gradients = gradient.data<A>();
    std::vector<double> rows(static_cast<size_t>(tokens));
#pragma omp parallel for schedule(static) if (logits.numel() > kParallelGrain)
    for (int64_t t = 0; t < tokens; ++t) {
      A* g = gradients + t * experts;
      const ExpRow<A> row = exp_row(xs + t * experts, g, experts);
      const A lse = row.max + std::log(row.sum);
      const A factor = 2 * lse / row.sum;
#pragma omp simd
      for (int64_t e = 0; e < experts; ++e) g[e] *= factor;
      rows[size_t(t)] = double(lse) * double(lse);
    }
    *sum.data<double>() = sum_in_order(rows);
  });
}

void sort_slots(const Tensor& indices, int64_t num_experts, const Tensor& row_of_slot,
                const Tensor& token_of_row, int64_t* tokens_per_expert) {
  constexpr int64_t kBlock = 16384;
  const int64_t slots = indices.numel(), top_k = indices.dim(1);
  const int64_t blocks = (slots + kBlock - 1) / kBlock;
  const int32_t* chosen = indices.data<int32_t>();
  int32_t* row = row_of_slot.data<int32_t>();
  int32_t* token = token_of_row.data<int32_t>();
  // Counting sort in blocks: count per (block, expert), turn counts into first rows, place.
  std::vector<int32_t> next(size_t(blocks * num_experts), 0);
#pragma omp parallel for schedule(static) if (slots > kParallelGrain)
  for (int64_t b = 0; b < blocks; ++b) {
    int32_t* count = next.data() + b * num_experts;
    for (int64_t s = b * kBlock; s < std::min(slots, (b + 1) * kBlock); ++s) ++count[chosen[s]];
  }
  int32_t position = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const int32_t first = position;
    for (int64_t b = 0; b < blocks; ++b) {
      const int32_t count = next[size_t(b * num_experts + e)];
      next[size_t(b * num_experts + e)] = position;
      position += count;
    }
    tokens_per_expert[e] = position - first;
  }
#pragma omp parallel for schedule(static) if (slots > kParallelGrain)
  for (int64_t b = 0; b < blocks; ++b) {
    int32_t* place = next.data() + b * num_experts;
    for (int64_t s = b * kBlock; s < std::min(slots, (b + 1) * kBlock); ++s) {
      const int32_t r = place[chosen[s]]++;
      row[s] = r;
      token[r] = int32_t(s / top_k);
    }
  }
}

}  // namespace smelt::kernels::cpu
