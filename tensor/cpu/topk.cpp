// Top-k by block maxima: one vectorised pass finds the largest key of each block of 32, then each
// of the k choices looks at the block maxima and at one block.
#include <algorithm>
#include <limits>
#include <vector>

#include "tensor/cpu/simd.h"
#include "tensor/kernels/routing.h"

namespace smelt::kernels::cpu {
namespace {

constexpr int64_t kBlock = 32;

/// Integer whose order is the order of the scores: equal scores (also +0 and -0) have equal keys,
/// NaN lies below minus infinity, and the smallest integer is left for "already taken".
template <typename Key, typename A>
Key key_of(A score) {
  const Key bits = std::bit_cast<Key>(score + A(0));  // -0 + 0 = +0
  const Key ordered = bits ^ ((bits >> (sizeof(Key) * 8 - 1)) & std::numeric_limits<Key>::max());
  return score != score ? std::numeric_limits<Key>::min() + 1 : ordered;
}

template <typename Key>
Key max_of(const Key* keys) {
  Key best = std::numeric_limits<Key>::min();
#pragma omp simd reduction(max : best)
  for (int64_t i = 0; i < kBlock; ++i) best = std::max(best, keys[i]);
  return best;
}

template <typename A, typename Key>
void select(const Tensor& scores, const Tensor& bias, const Tensor& out) {
  constexpr Key kTaken = std::numeric_limits<Key>::min();
  const int64_t tokens = scores.dim(0), experts = scores.dim(1), top_k = out.dim(1);
  const int64_t blocks = (experts + kBlock - 1) / kBlock;
  const A* score = scores.data<A>();
  const A* offset = bias.defined() ? bias.data<A>() : nullptr;
  int32_t* chosen = out.data<int32_t>();
#pragma omp parallel if (scores.numel() > kParallelGrain)
  {
    std::vector<Key> keys(size_t(blocks * kBlock), kTaken);
    std::vector<Key> block_max(static_cast<size_t>(blocks));
#pragma omp for schedule(static)
    for (int64_t t = 0; t < tokens; ++t) {
      const A* row = score + t * experts;
      Key* key = keys.data();
      if (offset != nullptr) {
#pragma omp simd
        for (int64_t e = 0; e < experts; ++e) key[e] = key_of<Key>(row[e] + offset[e]);
      } else {
#pragma omp simd
        for (int64_t e = 0; e < experts; ++e) key[e] = key_of<Key>(row[e]);
      }
      for (int64_t b = 0; b < blocks; ++b) block_max[size_t(b)] = max_of(key + b * kBlock);
      for (int64_t k = 0; k < top_k; ++k) {
        // The first block and the first place in it that hold the maximum: lowest index wins.
        const auto best = std::max_element(block_max.begin(), block_max.end());
        Key* block = key + (best - block_max.begin()) * kBlock;
        Key* place = std::find(block, block + kBlock, *best);
        chosen[t * top_k + k] = int32_t(place - key);
        *place = kTaken;
        *best = max_of(block);
      }
    }
  }
}

}  // namespace

void topk(const Tensor& scores, const Tensor& bias, const Tensor& out) {
  if (scores.dtype() == DType::f64) {
    select<double, int64_t>(scores, bias, out);
  } else {
    select<float, int32_t>(scores, bias, out);
  }
}

}  // namespace smelt::kernels::cpu
