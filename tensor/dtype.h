// Element types and bf16, with the dispatch from a run-time dtype to a C++ type.
#pragma once

#include <bit>
#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "tensor/error.h"

namespace smelt {

enum class DType : uint8_t { f32, bf16, f64, i32, i64 };

/// bfloat16 storage; arithmetic happens in float. Conversion rounds to nearest, ties to even, and
/// keeps NaN a NaN (cutting the low bits would turn some NaN into Inf); it computes both and picks
/// one, since with a branch g++ 12 leaves whole loops scalar.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  explicit bf16(float value) : bits(rounded(std::bit_cast<uint32_t>(value))) {}
  operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }

 private:
  static uint16_t rounded(uint32_t u) {
    const uint32_t nearest = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const uint32_t quiet_nan = (u >> 16) | 0x40u;
    return uint16_t((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : nearest);
  }
};

template <typename T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<int64_t> {
  static constexpr DType value = DType::i64;
};

/// Type in which sums over elements of T are formed: double for double, float for float and bf16.
template <typename T>
struct accumulator {
  using type = float;
};
template <>
struct accumulator<double> {
  using type = double;
};
template <typename T>
using acc_t = typename accumulator<T>::type;

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::i64:
      return 8;
  }
  return 0;
}
constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f64;
}
/// The dtype in which gradients of `dtype` accumulate and optimizer state is kept.
constexpr DType accumulation_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

std::string_view name_of(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);

/// Calls f(T{}) with the C++ type of a floating dtype; throws DTypeError naming `op` otherwise.
template <typename F>
auto dispatch_float(DType dtype, const char* op, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bf16{});
    case DType::f64:
      return f(double{});
    default:
      break;
  }
  SMELT_CHECK(DTypeError, false, op << ": dtype must be f32, bf16 or f64, not " << name_of(dtype));
  return f(float{});
}

/// Calls f(T{}) with the C++ type of any dtype.
template <typename F>
auto dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(bf16{});
    case DType::f64:
      return f(double{});
    case DType::i32:
      return f(int32_t{});
    case DType::i64:
      break;
  }
  return f(int64_t{});
}

}  // namespace smelt
