// Philox4x32-10 against its authors' known answers, and the distributions on top of it.
#include "tensor/rng.h"

#include <cmath>
#include <set>
#include <vector>

#include <boost/test/unit_test.hpp>

namespace smelt {
namespace {

using Block = std::array<uint32_t, 4>;

BOOST_AUTO_TEST_SUITE(rng)

BOOST_AUTO_TEST_CASE(philox_matches_the_known_answers) {
  const auto check = [](const Block& got, const Block& expected) {
    BOOST_TEST(got == expected, boost::test_tools::per_element());
  };
  check(philox4x32({0, 0, 0, 0}, {0, 0}), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t f = 0xffffffff;
  check(philox4x32({f, f, f, f}, {f, f}), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

BOOST_AUTO_TEST_CASE(hash_matches_the_published_value) {
  BOOST_TEST(fnv1a("") == 0xcbf29ce484222325u);
  BOOST_TEST(fnv1a("a") == 0xaf63dc4c8601ec8cu);
}

BOOST_AUTO_TEST_CASE(numbers_are_a_function_of_seed_purpose_and_index) {
  const Random a(7, "weights"), b(7, "weights");
  BOOST_TEST(a.bits(3) == b.bits(3));
  BOOST_TEST(a.normal(uint64_t{1} << 40) == b.normal(uint64_t{1} << 40));
  std::set<uint64_t> seen;
  for (const uint64_t seed : {7, 8}) {
    for (const char* purpose : {"weights", "data/order"}) {
      for (const uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
        seen.insert(Random(seed, purpose).bits(index));
      }
    }
  }
  BOOST_TEST(seen.size() == 12u);
}

BOOST_AUTO_TEST_CASE(uniform_has_the_moments_of_its_distribution) {
  constexpr int n = 200000;
  const Random random(1, "uniform");
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double u = random.uniform(static_cast<uint64_t>(i));
    BOOST_REQUIRE(u >= 0 && u < 1);
    sum += u;
    squares += u * u;
  }
  // Standard errors of the two means: sqrt(1/12/n) and sqrt(4/45/n); five of them.
  BOOST_TEST(std::abs(sum / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
  BOOST_TEST(std::abs(squares / n - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / n));
}

BOOST_AUTO_TEST_CASE(normal_has_the_moments_of_its_distribution) {
  constexpr int n = 200000;
  const Random random(2, "normal");
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, beyond = 0;
  for (int i = 0; i < n; ++i) {
    const double z = random.normal(static_cast<uint64_t>(i));
    m1 += z;
    m2 += z * z;
    m3 += z * z * z;
    m4 += z * z * z * z;
    beyond += std::abs(z) > 1.959964;
  }
  // Variances of z, z^2, z^3, z^4 are 1, 2, 15, 96.
  BOOST_TEST(std::abs(m1 / n) < 5 * std::sqrt(1.0 / n));
  BOOST_TEST(std::abs(m2 / n - 1) < 5 * std::sqrt(2.0 / n));
  BOOST_TEST(std::abs(m3 / n) < 5 * std::sqrt(15.0 / n));
  BOOST_TEST(std::abs(m4 / n - 3) < 5 * std::sqrt(96.0 / n));
  BOOST_TEST(std::abs(beyond / n - 0.05) < 5 * std::sqrt(0.05 * 0.95 / n));
}

BOOST_AUTO_TEST_CASE(purposes_seeds_and_neighbours_are_uncorrelated) {
  constexpr int n = 100000;
  const Random a(1, "layer.0.weight"), b(1, "layer.1.weight"), c(2, "layer.0.weight");
  double ab = 0, ac = 0, next = 0;
  for (uint64_t i = 0; i < n; ++i) {
    ab += a.normal(i) * b.normal(i);
    ac += a.normal(i) * c.normal(i);
    next += a.normal(i) * a.normal(i + 1);
  }
  const double limit = 5 * std::sqrt(double(n));  // a product of independent normals has variance 1
  BOOST_TEST(std::abs(ab) < limit);
  BOOST_TEST(std::abs(ac) < limit);
  BOOST_TEST(std::abs(next) < limit);
}

BOOST_AUTO_TEST_CASE(below_covers_its_range_evenly) {
  constexpr int n = 70000;
  std::vector<int> counts(7);
  const Random random(3, "below");
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t v = random.below(i, 7);
    BOOST_REQUIRE(v < 7);
    ++counts[v];
  }
  for (const int count : counts) BOOST_TEST(std::abs(count - n / 7) < 5 * std::sqrt(n / 7.0));
  BOOST_TEST(random.below(5, 1) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
