#include "tensor/cpu/skinny.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <omp.h>

#include "tensor/dtype.h"

namespace smelt::kernels::cpu {
namespace {

constexpr int64_t kLanes = 16;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

Lanes load(const float* p) {
  Lanes lanes;
  std::memcpy(&lanes, p, sizeof lanes);
  return lanes;
}

/// bf16 is the upper half of a float.
Lanes load(const bf16* p) {
  using Halves = uint16_t __attribute__((vector_size(kLanes * sizeof(uint16_t))));
  using Words = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));
  Halves halves;
  std::memcpy(&halves, p, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  Lanes lanes;
  std::memcpy(&lanes, &words, sizeof lanes);
  return lanes;
}

float sum(const Lanes& lanes) {
  float values[kLanes], total = 0;
  std::memcpy(values, &lanes, sizeof values);
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < kLanes; ++i) total += values[i];
  return total;
}

/// R rows of x times one row of w, which memory gives best one after the other. Two sums along the
/// row hide the latency of one where several rows of x make the arithmetic matter.
template <int R, typename W>
void dot_rows(int64_t K, const float* x, int64_t ldx, const W* w, float* y, int64_t ldy) {
  constexpr int kSums = std::is_same_v<W, float> && R > 1 ? 2 : 1;
  Lanes total[R][kSums] = {};
  int64_t k = 0;
  for (; k + kSums * kLanes <= K; k += kSums * kLanes) {
    for (int s = 0; s < kSums; ++s) {
      const Lanes row = load(w + k + s * kLanes);
      for (int r = 0; r < R; ++r) total[r][s] += load(x + r * ldx + k + s * kLanes) * row;
    }
  }
  for (int r = 0; r < R; ++r) {
    Lanes lanes = total[r][0];
    for (int s = 1; s < kSums; ++s) lanes += total[r][s];
    float rest = 0;
    for (int64_t i = k; i < K; ++i) rest += x[r * ldx + i] * float(w[i]);
    y[r * ldy] = sum(lanes) + rest;
  }
}

template <int R, typename W>
void product(int64_t N, int64_t K, const float* x, int64_t ldx, const W* w, int64_t ldw, float* y,
             int64_t ldy) {
  const bool parallel = omp_in_parallel() == 0 && N * K > (int64_t{1} << 15);
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t n = 0; n < N; ++n) dot_rows<R>(K, x, ldx, w + n * ldw, y + n, ldy);
}

}  // namespace

template <typename W>
void skinny_product(int64_t M, int64_t N, int64_t K, const float* x, int64_t ldx, const W* w,
                    int64_t ldw, float* y, int64_t ldy) {
  static_assert(kSkinnyRows == 4);
  switch (M) {
    case 1:
      return product<1>(N, K, x, ldx, w, ldw, y, ldy);
    case 2:
      return product<2>(N, K, x, ldx, w, ldw, y, ldy);
    case 3:
      return product<3>(N, K, x, ldx, w, ldw, y, ldy);
    default:
      return product<4>(N, K, x, ldx, w, ldw, y, ldy);
  }
}

template void skinny_product(int64_t, int64_t, int64_t, const float*, int64_t, const float*,
                             int64_t, float*, int64_t);
template void skinny_product(int64_t, int64_t, int64_t, const float*, int64_t, const bf16*, int64_t,
                             float*, int64_t);

}  // namespace smelt::kernels::cpu
