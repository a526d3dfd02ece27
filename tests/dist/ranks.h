// What the suites that run on several ranks share.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "dist/group.h"
#include "tensor/tensor.h"

namespace smelt::dist::testing {

/// The usual limit, where nothing here is cut, and one that cuts nearly everything (CASE 107).
constexpr std::array<int64_t, 2> kChunkLimits = {kDefaultChunkElements, 7};
constexpr std::array<DType, 5> kAllDTypes = {DType::f32, DType::bf16, DType::f64, DType::i32,
                                             DType::i64};
constexpr std::array<DType, 4> kSummedDTypes = {DType::f32, DType::f64, DType::i32, DType::i64};

/// A [n] tensor whose element i is f(i); values must be exact in every dtype, bf16 included.
template <typename F>
Tensor filled(int64_t n, DType dtype, F f) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(double(f(i)));
  return Tensor::from(values).to(dtype);
}

inline std::vector<double> values_of(const Tensor& x) {
  return x.to(DType::f64).to_vector<double>();
}

/// For BOOST_CHECK_EXCEPTION: whether the text contains `part`.
inline auto says(const std::string& part) {
  return [part](const std::exception& e) {
    return std::string(e.what()).find(part) != std::string::npos;
  };
}

}  // namespace smelt::dist::testing
