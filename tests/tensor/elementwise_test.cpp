#include "tensor/elementwise.h"

#include <functional>

#include <boost/test/unit_test.hpp>

#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

const Shape kShapes[] = {{}, {0}, {1}, {7}, {3, 0, 2}, {1, 5, 1}, {4, 3, 9}, {70, 301}};

/// f applied to the elements in double.
Tensor naive(const Tensor& x, const Tensor& y, const std::function<double(double, double)>& f) {
  std::vector<double> a = doubles(x);
  const std::vector<double> b = doubles(y);
  for (size_t i = 0; i < a.size(); ++i) a[i] = f(a[i], b[i]);
  return Tensor::from(a, x.shape());
}

BOOST_AUTO_TEST_SUITE(elementwise)

BOOST_AUTO_TEST_CASE(maps_match_a_naive_reference) {
  for (const DType dtype : kFloating) {
    for (const Shape& shape : kShapes) {
      BOOST_TEST_CONTEXT(dtype << " " << to_string(shape)) {
        const Tensor x = random_tensor(shape, dtype, 1), y = random_tensor(shape, dtype, 2);
        const Tolerance limit = tolerance::elementwise(dtype, 3, 10);
        check_close(add_scaled(x, y, -0.7),
                    naive(x, y, [](double a, double b) { return a - 0.7 * b; }), limit);
        check_close(mul(x, y), naive(x, y, [](double a, double b) { return a * b; }), limit);
        check_close(scale(x, 3.3), naive(x, x, [](double a, double) { return 3.3 * a; }), limit);
        BOOST_TEST(mul(x, y).dtype() == dtype);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(adds_in_place_across_dtypes) {
  for (const DType to : kFloating) {
    for (const DType from : kFloating) {
      BOOST_TEST_CONTEXT(from << " into " << to) {
        const Tensor x = random_tensor({5, 67}, to, 1), y = random_tensor({5, 67}, from, 2);
        const Tensor expected = naive(x, y, [](double a, double b) { return a + 0.3 * b; });
        const Tensor sum = x.clone();
        add_scaled_(sum, strided(y), 0.3);
        const DType coarser = unit_roundoff(from) > unit_roundoff(to) ? DType::f32 : to;
        check_close(sum, expected, tolerance::elementwise(to == DType::f64 ? coarser : to, 3, 10));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(adding_a_tensor_to_itself_doubles_it) {
  const Tensor x = random_tensor({40, 30});
  const Tensor expected = scale(x, 2);
  add_scaled_(x, x, 1);
  check_same_bits(x, expected);
  const Tensor square = random_tensor({33, 33});
  const Tensor transposed = square.transpose(0, 1).clone();
  const Tensor sum = add_scaled(square, transposed, 1);
  add_scaled_(square, square.transpose(0, 1), 1);  // reads what it writes
  check_same_bits(square, sum);
}

BOOST_AUTO_TEST_CASE(nan_and_infinity_pass_through) {
  const Tensor x = Tensor::from(std::vector<float>{1, float(kNaN), float(kInfinity), 0});
  const Tensor y = Tensor::from(std::vector<float>{float(kInfinity), 1, float(kInfinity), -1});
  check_close(add_scaled(x, y, -1),
              Tensor::from(std::vector<float>{-float(kInfinity), float(kNaN), float(kNaN), 1}), 0,
              0);
  BOOST_TEST(std::isnan(sum(x).item()));
  BOOST_TEST(sum_squares(y).item() == kInfinity);
}

BOOST_AUTO_TEST_CASE(reductions_match_a_naive_sum_in_double) {
  for (const DType dtype : kFloating) {
    for (const Shape& shape : kShapes) {
      BOOST_TEST_CONTEXT(dtype << " " << to_string(shape)) {
        const Tensor x = random_tensor(shape, dtype);
        long double total = 0, squares = 0;
        for (const double v : doubles(x)) {
          total += v;
          squares += static_cast<long double>(v) * v;
        }
        check_close(sum(x), Tensor::from(std::vector<double>{double(total)}),
                    tolerance::sum(DType::f64, x.numel(), 1));
        check_close(sum_squares(x), Tensor::from(std::vector<double>{double(squares)}),
                    tolerance::sum_of_one_sign(DType::f64, x.numel()));
      }
    }
  }
  // In f32 the ones would be lost beside 2^24.
  const Tensor ones = Tensor::full({100001}, 1);
  ones.slice(0, 0, 1).fill_(0x1p24);
  BOOST_TEST(sum(ones).item() == 0x1p24 + 100000);
}

// Case 53: inputs may have any strides.
BOOST_AUTO_TEST_CASE(strided_inputs_give_the_bits_of_contiguous_ones) {
  for (const DType dtype : kFloating) {
    const Tensor x = random_tensor({6, 5, 7}, dtype, 1), y = random_tensor({6, 5, 7}, dtype, 2);
    check_same_bits(add_scaled(strided(x), strided(y), 2), add_scaled(x, y, 2));
    check_same_bits(mul(strided(x), y), mul(x, y));
    check_same_bits(scale(strided(x), 2), scale(x, 2));
    check_same_bits(sum(strided(x)), sum(x));
    check_same_bits(sum_squares(strided(x)), sum_squares(x));
    const Tensor one = random_tensor({1, 1}, dtype), wide = one.expand({6, 7});
    check_same_bits(mul(wide, wide), mul(wide.clone(), wide.clone()));
  }
}

// Case 67: sums do not depend on the number of threads.
BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_number_of_threads) {
  const Tensor x = random_tensor({313, 1009}), y = random_tensor({313, 1009}, DType::f32, 2);
  check_same_bits_for_any_threads([&] {
    const Tensor z = x.clone();
    add_scaled_(z, y.to(DType::bf16), 0.1);
    return std::vector<Tensor>{sum(x), sum_squares(x), add_scaled(x, y, 0.1), mul(x, y), z};
  });
}

// Case 56: small terms must not vanish in a running sum.
BOOST_AUTO_TEST_CASE(three_hundred_bf16_ones_add_up_to_300_in_f32) {
  const Tensor one = Tensor::full({1}, 1, {DType::bf16, {}});
  const Tensor total = Tensor::zeros({1}), short_total = Tensor::zeros({1}, {DType::bf16, {}});
  for (int i = 0; i < 300; ++i) {
    add_scaled_(total, one, 1);
    add_scaled_(short_total, one, 1);
  }
  BOOST_TEST(total.item() == 300);
  BOOST_TEST(short_total.item() == 256);
}

// Case 57: updates below half a step of the weight are lost in bf16 and kept in an f32 master.
BOOST_AUTO_TEST_CASE(a_hundred_small_updates_arrive_in_f32_only) {
  const Tensor update = Tensor::full({1}, 1);
  const Tensor master = Tensor::full({1}, 1), plain = Tensor::full({1}, 1, {DType::bf16, {}});
  for (int i = 0; i < 100; ++i) {
    add_scaled_(master, update, -0.001);
    add_scaled_(plain, update, -0.001);
  }
  BOOST_TEST(std::abs(master.item() - 0.9) < 1e-5);
  BOOST_TEST(plain.item() == 1.0);
}

BOOST_AUTO_TEST_CASE(refusals_name_the_operation_and_both_sides) {
  const Tensor x = Tensor::zeros({2, 3});
  BOOST_CHECK_EXCEPTION(add_scaled(x, Tensor::zeros({3, 2}), 1), ShapeError,
                        says("add_scaled: shapes differ: [2, 3] and [3, 2]"));
  BOOST_CHECK_EXCEPTION(mul(x, Tensor::zeros({1, 3})), ShapeError,
                        says("mul: shapes differ: [2, 3] and [1, 3]"));
  BOOST_CHECK_EXCEPTION(mul(x, Tensor::zeros({2, 3}, {DType::f64, {}})), DTypeError,
                        says("mul: dtypes differ: f32 [2, 3] and f64 [2, 3]"));
  BOOST_CHECK_EXCEPTION(scale(Tensor::zeros({2}, {DType::i32, {}}), 1), DTypeError,
                        says("scale: x must be f32, bf16 or f64, is i32"));
  BOOST_CHECK_EXCEPTION(sum(Tensor::zeros({2}, {DType::i64, {}})), DTypeError,
                        says("sum: x must be f32, bf16 or f64, is i64"));
  BOOST_CHECK_EXCEPTION(sum_squares(Tensor()), ShapeError,
                        says("sum_squares: x is an undefined tensor"));
  BOOST_CHECK_EXCEPTION(mul(x, Tensor()), ShapeError, says("mul: y is an undefined tensor"));
  BOOST_CHECK_EXCEPTION(add_scaled_(x.transpose(0, 1), Tensor::zeros({3, 2}), 1), ShapeError,
                        says("add_scaled_: x of shape [3, 2] must be contiguous"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
