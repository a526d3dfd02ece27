// Helpers shared by the suites: seeded inputs, comparison of tensors, text of errors, threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <omp.h>

#include "tensor/rng.h"
#include "tensor/tensor.h"
#include "tests/tolerance.h"

namespace smelt::testing {

constexpr DType kFloating[] = {DType::f32, DType::bf16, DType::f64};
constexpr DType kFullPrecision[] = {DType::f32, DType::f64};
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Whether this is a build for AddressSanitizer, which keeps freed memory for a while: resident
/// memory says little then.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
constexpr bool kAddressSanitizer = false;
#endif

/// Normal numbers times `scale`, a function of (shape, seed) alone, rounded to dtype.
inline Tensor random_tensor(Shape shape, DType dtype = DType::f32, uint64_t seed = 1,
                            double scale = 1) {
  const Random random(seed, "test");
  std::vector<double> values(size_t(numel_of(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * random.normal(i);
  return Tensor::from(values, std::move(shape)).to(dtype);
}

/// Uniform i32 indices in [0, limit).
inline Tensor random_indices(Shape shape, int64_t limit, uint64_t seed = 1) {
  const Random random(seed, "test/indices");
  std::vector<int32_t> values(size_t(numel_of(shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = int32_t(random.below(i, static_cast<uint64_t>(limit)));
  return Tensor::from(values, std::move(shape));
}

/// The values of any tensor as doubles, row-major.
inline std::vector<double> doubles(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

/// The same values of x, rank >= 2, cut out of a larger buffer with its first and last dimension
/// swapped; the gaps hold NaN (-1 for integers).
inline Tensor strided(const Tensor& x) {
  Shape swapped = x.shape();
  std::swap(swapped.front(), swapped.back());
  Shape wider = swapped;
  wider.back() = 2 * wider.back() + 1;
  const Tensor buffer = Tensor::full(wider, is_floating(x.dtype()) ? kNaN : -1.0, x.options());
  const Tensor cut = buffer.slice(-1, 1, 1 + swapped.back()).transpose(0, -1);
  cut.copy_(x);
  return cut;
}

/// |a - b| <= atol + rtol |b| for every element; NaN equals NaN, infinities must agree in sign.
/// On failure prints the largest difference and where it is. `b` may have another dtype.
inline void check_close(const Tensor& a, const Tensor& b, Tolerance tolerance) {
  BOOST_REQUIRE_MESSAGE(a.defined() && b.defined(), "undefined tensor");
  BOOST_REQUIRE_EQUAL(to_string(a.shape()), to_string(b.shape()));
  const std::vector<double> x = doubles(a), y = doubles(b);
  double worst = 0, largest = 0;
  size_t bad = 0, at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]));
    const double difference = same ? 0 : std::abs(x[i] - y[i]);
    const double excess = difference / (tolerance.atol + tolerance.rtol * std::abs(y[i]));
    largest = std::max(largest, difference);
    if (same || excess <= 1) continue;
    ++bad;
    if (bad == 1 || excess > worst || std::isnan(excess)) {
      worst = excess;
      at = i;
    }
  }
  BOOST_CHECK_MESSAGE(bad == 0, bad << " of " << x.size() << " elements of " << to_string(a.shape())
                                    << " " << a.dtype() << " differ: max difference " << largest
                                    << ", worst at " << at << ": " << (bad ? x[at] : 0)
                                    << " against " << (bad ? y[at] : 0) << " (rtol "
                                    << tolerance.rtol << ", atol " << tolerance.atol << ")");
}
inline void check_close(const Tensor& a, const Tensor& b, double rtol, double atol) {
  check_close(a, b, Tolerance{rtol, atol});
}

/// Same dtype, shape and bits.
inline void check_same_bits(const Tensor& a, const Tensor& b) {
  BOOST_REQUIRE_MESSAGE(a.defined() && b.defined(), "undefined tensor");
  BOOST_REQUIRE_EQUAL(a.dtype(), b.dtype());
  BOOST_REQUIRE_EQUAL(to_string(a.shape()), to_string(b.shape()));
  const Tensor x = a.contiguous(), y = b.contiguous();
  if (x.numel() == 0) return;
  BOOST_CHECK_MESSAGE(std::memcmp(x.raw(), y.raw(), size_t(x.bytes())) == 0,
                      "bits of " << to_string(a.shape()) << " " << a.dtype() << " differ");
}

/// Predicate for BOOST_CHECK_EXCEPTION: the message contains `fragment`.
inline auto says(std::string fragment) {
  return [fragment = std::move(fragment)](const std::exception& e) {
    const bool found = std::string_view(e.what()).find(fragment) != std::string_view::npos;
    if (!found) BOOST_TEST_MESSAGE("message was: " << e.what());
    return found;
  };
}

/// f() with n OpenMP threads.
template <typename F>
auto with_threads(int n, F&& f) {
  struct Restore {
    int before = omp_get_max_threads();
    ~Restore() { omp_set_num_threads(before); }
  } restore;
  omp_set_num_threads(n);
  return f();
}

/// f() returns tensors; they must have the same bits with 1, 2 and 3 threads.
template <typename F>
void check_same_bits_for_any_threads(F&& f) {
  const std::vector<Tensor> one = with_threads(1, f);
  for (const int threads : {2, 3}) {
    const std::vector<Tensor> many = with_threads(threads, f);
    BOOST_REQUIRE_EQUAL(one.size(), many.size());
    for (size_t i = 0; i < one.size(); ++i) {
      BOOST_TEST_CONTEXT("result " << i << ", threads " << threads) {
        check_same_bits(one[i], many[i]);
      }
    }
  }
}

}  // namespace smelt::testing
