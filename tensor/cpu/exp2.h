// 2^x for softmax loops: the C library's vector forms are only declared under fast-math, which the
// build does not use. Softmax in powers of two needs no ln 2 in the range reduction: the scores are
// scaled by log2(e) beforehand.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace smelt::kernels::cpu {

constexpr double kLog2e = std::numbers::log2e;
constexpr double kLn2 = std::numbers::ln2;

/// 2^x with a relative error below 8e-8 for x in [-126, 127.5]; 0 below -126.5,
/// infinity above 127.5, NaN for NaN. `omp simd` loops over it vectorise.
inline float simd_exp2(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the integer in the low bits
  const float low = x < -127.0f ? -127.0f : x;
  const float y = low > 128.0f ? 128.0f : low;
  const float shifted = y + kRound;
  const float r = y - (shifted - kRound);  // exact, in [-0.5, 0.5]
  // Minimax polynomial for 2^r by the Remez exchange, relative error 1.9e-9.
  float p = 1.5345812003e-04f;
  p = p * r + 1.3399931219e-03f;
  p = p * r + 9.6184889571e-03f;
  p = p * r + 5.5503287770e-02f;
  p = p * r + 2.4022646891e-01f;
  p = p * r + 6.9314720574e-01f;
  p = p * r + 1.0f;
  // The exponent field: -127 gives 0 and 128 gives infinity, the values wanted at the bounds.
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) << 23) + (127u << 23);
  return p * std::bit_cast<float>(exponent);
}
inline double simd_exp2(double x) { return std::exp2(x); }

}  // namespace smelt::kernels::cpu
