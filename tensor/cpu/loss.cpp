// Fused output projection and cross-entropy over blocks of tokens. Per block: gather the tokens
// that have a target, logits = x W^T (in units of log 2, sums in f32), softmax and loss per row
// with the logits' gradient in the dtype of x, dx = dlogits W, dweight += dlogits^T x.
#include "tensor/kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/cpu/blas.h"
#include "tensor/cpu/exp2.h"
#include "tensor/cpu/simd.h"

namespace smelt::kernels::cpu {
namespace {

/// Loss of one row of logits (in units of log 2), which are overwritten, and their gradient if
/// dlogits is given; it may be the same row.
template <typename T, typename A = acc_t<T>>
A row_loss(A* logits, int64_t words, int64_t target, T* dlogits) {
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
  if (dlogits != nullptr) {
    const A factor = A(1) / sum, p_target = logits[target] * factor;
#pragma omp simd
    for (int64_t j = 0; j < words; ++j) dlogits[j] = round_to<T>(logits[j] * factor);
    dlogits[target] = T(p_target - A(1));
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

  constexpr bool kNarrow = !std::is_same_v<A, T>;  // dlogits need memory of their own
  const int64_t block = loss_block_tokens(count, words, result.losses.dtype());
  const TensorOptions options{result.losses.dtype(), {}};
  const Tensor logits_memory = Tensor::empty({block, words}, options);
  const Tensor dlogits_memory =
      want_grad && kNarrow ? Tensor::empty({block, words}, x.options()) : Tensor();
  const Tensor x_memory = Tensor::empty({block, size}, x.options());
  const Tensor dx_memory = want_grad ? Tensor::empty({block, size}, options) : Tensor();
  A* const logits = logits_memory.data<A>();
  T* dlogits = nullptr;
  if constexpr (kNarrow) {
    if (want_grad) dlogits = dlogits_memory.data<T>();
  } else {
    if (want_grad) dlogits = logits;
  }

  for (int64_t first = 0; first < count; first += block) {
    const int64_t rows = std::min(block, count - first);
    const int64_t* const token = tokens.data() + first;
    // Tokens that follow each other are used where they lie.
    const bool in_place = token[rows - 1] - token[0] == rows - 1;
    const T* const xs = x.data<T>();
    T* const packed = x_memory.data<T>();
    const T* const xb = in_place ? xs + token[0] * size : packed;
    if (!in_place) {
#pragma omp parallel for schedule(static) if (rows * size > kParallelGrain)
      for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(xs + token[i] * size, size, packed + i * size);
      }
    }

    gemm(false, true, rows, words, size, A(kLog2e), xb, size, w, size, A(0), logits, words);
#pragma omp parallel for schedule(static) if (rows * words > kParallelGrain)
    for (int64_t i = 0; i < rows; ++i) {
      losses[token[i]] = row_loss<T>(logits + i * words, words, targets[token[i]],
                                     want_grad ? dlogits + i * words : nullptr);
    }
    if (!want_grad) continue;

    A* dxb = dx_memory.data<A>();
    if constexpr (!kNarrow) {
      if (in_place) dxb = dx + token[0] * size;
    }
    gemm(false, false, rows, size, words, A(1), dlogits, words, w, size, A(0), dxb, size);
    if (kNarrow || !in_place) {
#pragma omp parallel for schedule(static) if (rows * size > kParallelGrain)
      for (int64_t i = 0; i < rows; ++i) {
#pragma omp simd
        for (int64_t d = 0; d < size; ++d) dx[token[i] * size + d] = round_to<T>(dxb[i * size + d]);
      }
    }
    gemm(true, false, words, size, rows, A(1), dlogits, words, xb, size, A(first == 0 ? 0 : 1),
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
