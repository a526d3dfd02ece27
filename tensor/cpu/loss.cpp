// Fused output projection and cross-entropy over blocks of tokens. Per block: gather the tokens
// that have a target, logits = x W^T (in units of log 2), softmax and loss per row with the logits
// becoming their gradient in place, dx = dlogits W, dweight += dlogits^T x.
#include "tensor/kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/cpu/blas.h"
#include "tensor/cpu/exp2.h"

namespace smelt::kernels::cpu {
namespace {

constexpr int64_t kWordBytes = int64_t{4} << 20;  // bf16: widened piece of W

/// Words per product: all of them, or as many as a widened piece of W may hold.
template <typename T>
int64_t words_per_piece(int64_t words, int64_t size) {
  if constexpr (!std::is_same_v<T, bf16>) return words;
  return std::clamp<int64_t>(kWordBytes / (std::max<int64_t>(size, 1) * 4), 1,
                             std::max<int64_t>(words, 1));
}

template <typename A, typename T>
const A* widened(const T* source, int64_t count, A* buffer) {
  if constexpr (std::is_same_v<A, T>) {
    return source;
  } else {
#pragma omp parallel for simd schedule(static) if (count > kParallelGrain)
    for (int64_t i = 0; i < count; ++i) buffer[i] = A(source[i]);
    return buffer;
  }
}

/// Loss of one row of logits (in units of log 2); turns them into their gradient if asked to.
template <typename A>
A row_loss(A* logits, int64_t words, int64_t target, bool want_grad) {
  A max = -std::numeric_limits<A>::infinity();
#pragma omp simd reduction(max : max)
  for (int64_t j = 0; j < words; ++j) max = logits[j] > max ? logits[j] : max;
  const A at_target = logits[target];
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < words; ++j) {
    const A p = simd_exp2(logits[j] - max);
    logits[j] = p;
    sum += p;
  }
  if (want_grad) {
    const A factor = A(1) / sum;
#pragma omp simd
    for (int64_t j = 0; j < words; ++j) logits[j] *= factor;
    logits[target] -= A(1);
  }
  return (std::log2(sum) + (max - at_target)) * A(kLn2);
}

template <typename T, typename A = acc_t<T>>
void run(const Tensor& x, const Tensor& weight, const int32_t* targets,
         const LinearCrossEntropy& result) {
  const int64_t size = x.dim(1), words = weight.dim(0);
  const bool want_grad = result.dx.defined();
  const T* const w = weight.data<T>();
  A* const losses = result.losses.data<A>();
  T* const dx = want_grad ? result.dx.data<T>() : nullptr;
  A* const dweight = want_grad ? result.dweight.data<A>() : nullptr;

  std::vector<int64_t> tokens;  // those with a target
  for (int64_t t = 0; t < x.dim(0); ++t) {
    if (targets[t] >= 0) {
      tokens.push_back(t);
      continue;
    }
    losses[t] = 0;
    if (want_grad) std::fill_n(dx + t * size, size, T(0.0f));
  }
  const auto count = int64_t(tokens.size());
  if (count == 0) {
    if (want_grad) result.dweight.zero_();
    return;
  }

  const int64_t block = loss_block_tokens(count, words, result.losses.dtype());
  const int64_t piece = words_per_piece<T>(words, size);
  const TensorOptions options{result.losses.dtype(), {}};
  const Tensor logits_memory = Tensor::empty({block, words}, options);
  const Tensor x_memory = Tensor::empty({block, size}, options);
  const Tensor dx_memory = want_grad ? Tensor::empty({block, size}, options) : Tensor();
  const Tensor w_memory = std::is_same_v<A, T> ? Tensor() : Tensor::empty({piece, size}, options);
  A* const logits = logits_memory.data<A>();
  A* const w_buffer = w_memory.defined() ? w_memory.data<A>() : nullptr;

  for (int64_t first = 0; first < count; first += block) {
    const int64_t rows = std::min(block, count - first);
    const int64_t* const token = tokens.data() + first;
    // Tokens that follow each other are used where they lie.
    const bool in_place = std::is_same_v<A, T> && token[rows - 1] - token[0] == rows - 1;
    A* const packed = x_memory.data<A>();
    const A* xb = packed;
    if constexpr (std::is_same_v<A, T>) {
      if (in_place) xb = x.data<T>() + token[0] * size;
    }
    if (!in_place) {
      const T* const source = x.data<T>();
#pragma omp parallel for schedule(static) if (rows * size > kParallelGrain)
      for (int64_t i = 0; i < rows; ++i) {
#pragma omp simd
        for (int64_t d = 0; d < size; ++d) packed[i * size + d] = A(source[token[i] * size + d]);
      }
    }

    for (int64_t j = 0; j < words; j += piece) {
      const int64_t n = std::min(piece, words - j);
      const A* const wb = widened(w + j * size, n * size, w_buffer);
      gemm(false, true, rows, n, size, A(kLog2e), xb, size, wb, size, A(0), logits + j, words);
    }
#pragma omp parallel for schedule(static) if (rows * words > kParallelGrain)
    for (int64_t i = 0; i < rows; ++i) {
      losses[token[i]] = row_loss(logits + i * words, words, targets[token[i]], want_grad);
    }
    if (!want_grad) continue;

    A* dxb = dx_memory.data<A>();
    if constexpr (std::is_same_v<A, T>) {
      if (in_place) dxb = dx + token[0] * size;
    }
    for (int64_t j = 0; j < words; j += piece) {
      const int64_t n = std::min(piece, words - j);
      const A* const wb = widened(w + j * size, n * size, w_buffer);
      gemm(false, false, rows, size, n, A(1), logits + j, words, wb, size, A(j == 0 ? 0 : 1), dxb,
           size);
    }
    if (!in_place) {
#pragma omp parallel for schedule(static) if (rows * size > kParallelGrain)
      for (int64_t i = 0; i < rows; ++i) {
#pragma omp simd
        for (int64_t d = 0; d < size; ++d) dx[token[i] * size + d] = T(dxb[i * size + d]);
      }
    }
    gemm(true, false, words, size, rows, A(1), logits, words, xb, size, A(first == 0 ? 0 : 1),
         dweight, size);
  }
}

}  // namespace

void linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                          const LinearCrossEntropy& result) {
  dispatch_float(x.dtype(), "linear_cross_entropy",
                 [&](auto tag) { run<decltype(tag)>(x, weight, targets.data<int32_t>(), result); });
}

}  // namespace smelt::kernels::cpu
