// Private to tensor/cpu/: scalar pieces that compilers turn into vector code inside omp simd loops.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/dtype.h"

namespace smelt::kernels::cpu {

/// T(value). In omp simd loops g++ 12 leaves a loop scalar that constructs an object, and vectorises
/// one that calls a function for it.
template <typename T>
inline T round_to(acc_t<T> value) {
  return T(value);
}

/// exp(x) to about 1 ulp, subnormal results included; NaN stays NaN. The C library's vector expf is
/// hidden from g++ without fast-math, and differs in the last bit from its scalar expf: a row's
/// remainder would then get other bits than its body, so that equal logits could have unequal
/// probabilities. Here every lane does the same arithmetic.
inline float vector_exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float below = x > 89.0f ? 89.0f : x;
  const float c = below < -104.0f ? -104.0f : below;
  const float shifted = c * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // c - n ln 2 with ln 2 in two parts, the first exact in its product with n.
  const float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
  // Cephes' minimax polynomial for exp on [-ln2/2, ln2/2].
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r * r + r) + 1.0f;
  // 2^n as two factors that are both normal numbers.
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t half = exponent >> 1;
  const auto scale0 = std::bit_cast<float>(uint32_t(half + 127) << 23);
  const auto scale1 = std::bit_cast<float>(uint32_t(exponent - half + 127) << 23);
  return p * scale0 * scale1;
}
inline double vector_exp(double x) { return std::exp(x); }

}  // namespace smelt::kernels::cpu
