#include "tensor/rotary.h"

#include <numeric>

#include <boost/test/unit_test.hpp>

#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

Tensor naive(const Tensor& x, const Tensor& positions, double theta, double sign) {
  const int64_t T = x.dim(0), heads = x.dim(1), D = x.dim(2);
  const std::vector<double> a = doubles(x), position = doubles(positions);
  std::vector<double> out(a.size());
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t j = 0; j < D / 2; ++j) {
        const double angle =
            sign * position[size_t(t)] * std::pow(theta, -2.0 * double(j) / double(D));
        const auto low = size_t((t * heads + h) * D + j), high = low + size_t(D / 2);
        out[low] = a[low] * std::cos(angle) - a[high] * std::sin(angle);
        out[high] = a[high] * std::cos(angle) + a[low] * std::sin(angle);
      }
    }
  }
  return Tensor::from(out, x.shape());
}

BOOST_AUTO_TEST_SUITE(rotary)

BOOST_AUTO_TEST_CASE(turns_by_position_and_back_as_a_naive_reference) {
  for (const DType dtype : kFloating) {
    for (const Shape& shape : {Shape{0, 2, 4}, {1, 1, 2}, {5, 3, 6}, {4, 0, 8}, {9, 2, 64}}) {
      BOOST_TEST_CONTEXT(dtype << " " << to_string(shape)) {
        const RotaryTable table = rotary_table(100, shape[2], 10000, dtype);
        const Tensor x = random_tensor(shape, dtype);
        const Tensor positions = random_indices({shape[0]}, 100);
        // Table entry, two products, one sum; values up to about 5 before cancellation.
        const Tolerance limit = tolerance::elementwise(dtype, 4, 10);
        const Tensor turned = smelt::rotary(x, positions, table, false);
        check_close(turned, naive(x, positions, 10000, 1), limit);
        check_close(smelt::rotary(x, positions, table, true), naive(x, positions, 10000, -1),
                    limit);
        if (dtype != DType::bf16) {
          check_close(smelt::rotary(turned, positions, table, true), x, limit);
        }
      }
    }
  }
}

// Case 48: element j pairs with j + D/2, not with its neighbour.
BOOST_AUTO_TEST_CASE(pairs_halves_not_neighbours) {
  const RotaryTable table = rotary_table(2, 4, 10000, DType::f64);
  const Tensor x = Tensor::from(std::vector<double>{1, 0, 0, 0}, {1, 1, 4});
  const Tensor one = Tensor::from(std::vector<int32_t>{1});
  check_close(
      smelt::rotary(x, one, table, false),
      Tensor::from(std::vector<double>{0.5403023058681398, 0, 0.8414709848078965, 0}, {1, 1, 4}),
      1e-15, 0);
}

BOOST_AUTO_TEST_CASE(scores_depend_on_the_distance_alone) {
  const RotaryTable table = rotary_table(4000, 8, 500, DType::f64);
  const Tensor q = random_tensor({1, 1, 8}, DType::f64, 1),
               k = random_tensor({1, 1, 8}, DType::f64, 2);
  const auto score = [&](int32_t at, int32_t from) {
    const auto a = doubles(smelt::rotary(q, Tensor::from(std::vector<int32_t>{at}), table, false));
    const auto b =
        doubles(smelt::rotary(k, Tensor::from(std::vector<int32_t>{from}), table, false));
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  BOOST_TEST(std::abs(score(7, 3) - score(3999, 3995)) < 1e-11);
  BOOST_TEST(std::abs(score(7, 3) - score(7, 4)) > 1e-3);
}

BOOST_AUTO_TEST_CASE(tables_hold_the_dtype_that_statistics_have) {
  BOOST_TEST(rotary_table(3, 4, 10000, DType::bf16).cosines.dtype() == DType::f32);
  BOOST_TEST(rotary_table(3, 4, 10000, DType::f64).sines.dtype() == DType::f64);
  const RotaryTable none = rotary_table(0, 4, 10000, DType::f32);
  BOOST_TEST(none.cosines.shape() == Shape({0, 2}), boost::test_tools::per_element());
  // Far positions keep their angle: computed in double, rounded once.
  const RotaryTable far = rotary_table(200000, 2, 10000, DType::f32);
  BOOST_TEST(std::abs(far.cosines.slice(0, 199999, 200000).item() - std::cos(199999.0)) < 1e-7);
}

// Case 53, and heads cut out of a fused projection without a copy.
BOOST_AUTO_TEST_CASE(strided_inputs_give_the_bits_of_contiguous_ones) {
  for (const DType dtype : kFloating) {
    const RotaryTable table = rotary_table(20, 6, 10000, dtype);
    const Tensor positions = random_indices({5}, 20);
    const Tensor fused = random_tensor({5, 7, 6}, dtype);
    const Tensor heads = fused.slice(1, 2, 5);
    const Tensor expected = smelt::rotary(heads.clone(), positions, table, false);
    check_same_bits(smelt::rotary(heads, positions, table, false), expected);
    check_same_bits(smelt::rotary(strided(heads), positions, table, false), expected);
    const Tensor by_head = heads.transpose(0, 1).clone();  // [heads, T, D]
    check_same_bits(smelt::rotary(by_head.transpose(0, 1), positions, table, false), expected);
    const Tensor wide = random_tensor({5, 1, 1}, dtype).expand({5, 3, 6});
    check_same_bits(smelt::rotary(wide, positions, table, true),
                    smelt::rotary(wide.clone(), positions, table, true));
  }
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_number_of_threads) {
  const RotaryTable table = rotary_table(500, 16, 10000, DType::f32);
  const Tensor x = random_tensor({500, 4, 16}), positions = random_indices({500}, 500);
  check_same_bits_for_any_threads(
      [&] { return std::vector<Tensor>{smelt::rotary(x, positions, table, false)}; });
}

BOOST_AUTO_TEST_CASE(refusals_name_the_argument_and_its_value) {
  BOOST_CHECK_EXCEPTION(rotary_table(4, 5, 1e4, DType::f32), ShapeError,
                        says("rotary_table: head_dim must be even and positive, is 5"));
  BOOST_CHECK_THROW(rotary_table(4, 0, 1e4, DType::f32), ShapeError);
  BOOST_CHECK_EXCEPTION(rotary_table(-1, 4, 1e4, DType::f32), ShapeError,
                        says("positions must not be negative, is -1"));
  BOOST_CHECK_EXCEPTION(rotary_table(4, 4, 0, DType::f32), ConfigError,
                        says("theta must be positive, is 0"));
  const RotaryTable table = rotary_table(4, 6, 1e4, DType::f32);
  const Tensor x = Tensor::zeros({3, 2, 6});
  const auto at = [](std::vector<int32_t> p) { return Tensor::from(p); };
  BOOST_CHECK_EXCEPTION(smelt::rotary(x, at({0, 4, 1}), table, false), ShapeError,
                        says("rotary: positions[1] is 4, must be in [0, 4)"));
  BOOST_CHECK_EXCEPTION(smelt::rotary(x, at({0, 3, -1}), table, false), ShapeError,
                        says("rotary: positions[2] is -1"));
  BOOST_CHECK_EXCEPTION(smelt::rotary(x, at({0, 1}), table, false), ShapeError,
                        says("rotary: positions must be [3], shape is [2]"));
  BOOST_CHECK_EXCEPTION(smelt::rotary(Tensor::zeros({3, 2, 8}), at({0, 1, 2}), table, false),
                        ShapeError, says("rotary: table [4, 3] does not fit x [3, 2, 8]"));
  BOOST_CHECK_EXCEPTION(smelt::rotary(x.to(DType::f64), at({0, 1, 2}), table, false), DTypeError,
                        says("rotary: table.cosines must be f64, is f32"));
  BOOST_CHECK_EXCEPTION(smelt::rotary(Tensor::zeros({3, 6}), at({0, 1, 2}), table, false),
                        ShapeError, says("rotary: x must have 3 dimensions, shape is [3, 6]"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
