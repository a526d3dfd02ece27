// Elements on their way between a file and memory. Private to reader and writer.
#pragma once

#include <bit>
#include <cstdint>

#include "apps/common/safetensors_format.h"

namespace smelt::safetensors {

/// IEEE half precision. Both directions are made of selections without branches, so that loops over
/// them become vector code.
inline float half_to_float(uint16_t half) {
  const uint32_t magnitude = uint32_t(half & 0x7fffu) << 13;
  // Exponent and mantissa lie as in float but for the bias (15, not 127); the product puts that
  // right for subnormals too, and infinity and NaN get the largest exponent.
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t finite = magnitude < (0x1fu << 23) ? scaled : magnitude | 0x7f800000u;
  return std::bit_cast<float>(finite | uint32_t(half & 0x8000u) << 16);
}

/// To the nearest, ties to even; what is too large becomes infinity and NaN stays NaN.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  // Normal halves: rebias, then round away 13 bits of the mantissa; a carry moves the exponent up.
  const uint32_t rounded = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14: adding 0.5 makes float's own rounding leave multiples of 2^-24 in the low bits.
  const uint32_t tiny =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t finite = magnitude < 0x38800000u ? tiny : rounded;
  const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return uint16_t((magnitude < 0x477ff000u ? finite : large) | (bits >> 16 & 0x8000u));
}

/// Converts `count` packed elements of a floating file dtype at `from`, of any alignment, to `to`.
void convert(const FileDType& type, const void* from, DType to, void* out, int64_t count);

}  // namespace smelt::safetensors
