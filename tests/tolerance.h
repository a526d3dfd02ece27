// How far a result may be from the exact one, derived from the arithmetic that produced it.
//
// With unit roundoff u, a result of n rounded operations on exact inputs is off by at most about
// n u relative to the largest intermediate value (Higham, "Accuracy and Stability of Numerical
// Algorithms", section 3.1); storing it adds one rounding of the storage type. Each bound is
// doubled for what the first-order analysis leaves out.
#pragma once

#include <cmath>

#include "tensor/dtype.h"

namespace smelt::testing {

struct Tolerance {
  double rtol, atol;
};

/// Half the distance from 1 to the next number: f32 has 24 significant bits, bf16 8, f64 53.
constexpr double unit_roundoff(DType dtype) {
  return dtype == DType::f64 ? 0x1p-53 : dtype == DType::f32 ? 0x1p-24 : 0x1p-8;
}
/// The same for the type in which results of `dtype` are computed.
constexpr double computing_roundoff(DType dtype) {
  return unit_roundoff(accumulation_dtype(dtype));
}

namespace tolerance {

/// `operations` roundings per element, of values no larger than `magnitude`, then storage.
constexpr Tolerance elementwise(DType dtype, int operations, double magnitude = 1) {
  return {2 * unit_roundoff(dtype), 2 * operations * computing_roundoff(dtype) * magnitude};
}

/// A sum of `terms` values of either sign, no larger than `magnitude`: the running sum stays near
/// sqrt(terms) * magnitude and the errors of its `terms` additions, of either sign too, add up to
/// sqrt(terms) times one of them: terms * u * magnitude together.
constexpr Tolerance sum(DType dtype, int64_t terms, double magnitude) {
  return {2 * unit_roundoff(dtype), 2 * double(terms + 1) * computing_roundoff(dtype) * magnitude};
}

/// A sum of `terms` values of one sign: every addition may be off by u times the whole sum.
inline Tolerance sum_of_one_sign(DType dtype, int64_t terms) {
  const double grown = std::sqrt(double(terms + 1)) * computing_roundoff(dtype);
  return {2 * (unit_roundoff(dtype) + grown), 0};
}

/// What a softmax weights, and the gradients of that, relative to the largest result. A score is a
/// sum of `inner` products no larger than `magnitude`, and its error is the relative error of its
/// probability. The normaliser and the weighted sum behind it make 2 `outer` additions, whose
/// running sums do not pass the result by much, whatever their order. 8 roundings for exponential,
/// logarithm, division and what lies between.
inline double softmax_of_products(DType dtype, int64_t inner, double magnitude, int64_t outer) {
  const DType full = accumulation_dtype(dtype);
  return unit_roundoff(dtype) + sum(full, inner, magnitude).atol +
         sum_of_one_sign(full, 2 * outer).rtol + elementwise(full, 8).atol;
}

}  // namespace tolerance
}  // namespace smelt::testing
