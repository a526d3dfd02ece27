#include "autograd/elementwise.h"

#include "tests/autograd/gradient_check.h"

namespace smelt {
namespace {

using namespace testing;
using Variables = std::vector<Variable>;

const Shape kShapes[] = {{3, 5}, {1, 7}, {6, 1}, {1, 1}, {0, 4}, {4, 0}, {7}, {1}, {0}, {2, 3, 5}};
const Shape kMatrices[] = {{3, 5}, {1, 7}, {6, 1}, {1, 1}, {0, 4}, {4, 0}};

BOOST_AUTO_TEST_SUITE(elementwise)

BOOST_AUTO_TEST_CASE(gradients_of_arithmetic) {
  for (const Shape& shape : kShapes) {
    const std::vector<Tensor> one = random_inputs({shape}), two = random_inputs({shape, shape});
    for (const double alpha : {1.0, -0.25}) {
      BOOST_TEST_CONTEXT("add_scaled " << alpha) {
        check_gradients(single([=](const Variables& x) { return add_scaled(x[0], x[1], alpha); }),
                        two);
      }
    }
    BOOST_TEST_CONTEXT("mul") {
      check_gradients(single([](const Variables& x) { return mul(x[0], x[1]); }), two);
    }
    BOOST_TEST_CONTEXT("scale") {
      check_gradients(single([](const Variables& x) { return scale(x[0], -1.75); }), one);
    }
    BOOST_TEST_CONTEXT("clamp") {  // some of the values lie beyond the bound, none near it
      check_gradients(single([](const Variables& x) { return clamp(x[0], 0.77); }), one);
    }
    BOOST_TEST_CONTEXT("sum") {
      check_gradients(single([](const Variables& x) { return sum(x[0]); }), one);
    }
    BOOST_TEST_CONTEXT("cast") {
      // In bf16 the cast to f32 and back is exact; in f64 it is the function itself.
      check_gradients(single([](const Variables& x) {
                        const DType wide = accumulation_dtype(x[0].dtype());
                        return cast(cast(x[0], wide), x[0].dtype());
                      }),
                      one);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_one_variable_used_twice_by_one_function) {
  check_gradients(single([](const Variables& x) { return mul(x[0], x[0]); }),
                  random_inputs({{3, 5}}));
  check_gradients(single([](const Variables& x) { return add_scaled(x[0], x[0], 0.5); }),
                  random_inputs({{3, 5}}));
  check_gradients(single([](const Variables& x) {
                    return concat_rows({x[0], x[1], x[0]});
                  }),
                  random_inputs({{3, 5}, {1, 5}}));
}

BOOST_AUTO_TEST_CASE(gradients_of_views) {
  for (const Shape& shape : kMatrices) {
    const int64_t rows = shape[0], columns = shape[1];
    const std::vector<Tensor> x = random_inputs({shape});
    BOOST_TEST_CONTEXT("reshape") {
      check_gradients(single([=](const Variables& v) {
                        return reshape(v[0], {columns, 1, rows});
                      }),
                      x);
    }
    BOOST_TEST_CONTEXT("transpose") {
      check_gradients(single([](const Variables& v) { return transpose(v[0], 0, 1); }), x);
    }
    BOOST_TEST_CONTEXT("split_columns") {
      const std::vector<int64_t> sizes = {columns / 2, 0, columns - columns / 2};
      check_gradients([=](const Variables& v) { return split_columns(v[0], sizes); }, x);
    }
    BOOST_TEST_CONTEXT("concat_rows") {
      check_gradients(single([](const Variables& v) { return concat_rows(v); }),
                      random_inputs({shape, {2, columns}, {0, columns}, shape}));
    }
  }
  check_gradients(single([](const Variables& v) { return transpose(v[0], -1, 0); }),
                  random_inputs({{2, 3, 5}}));
  check_gradients(single([](const Variables& v) { return transpose(v[0], 1, 1); }),
                  random_inputs({{2, 3, 5}}));
}

BOOST_AUTO_TEST_CASE(values_of_views) {
  const Variable x(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  const Variables parts = split_columns(x, {1, 2});
  BOOST_TEST(doubles(parts[0].data()) == std::vector<double>({1, 4}));
  BOOST_TEST(doubles(parts[1].data()) == std::vector<double>({2, 3, 5, 6}));
  BOOST_TEST(parts[1].data().shares_storage_with(x.data()));
  const Variable below =
      concat_rows({transpose(x, 0, 1), Variable(Tensor::zeros({1, 2}, {DType::f64, {}}))});
  BOOST_TEST(doubles(below.data()) == std::vector<double>({1, 4, 2, 5, 3, 6, 0, 0}));
  BOOST_TEST(doubles(reshape(transpose(x, 0, 1), {2, 3}).data()) ==
             std::vector<double>({1, 4, 2, 5, 3, 6}));
  BOOST_TEST(sum(x).item() == 21);
  const Variable wide(Tensor::from<double>({-3, -2, 0.5, 2, kNaN, 7}), true);
  const Variable moved = clamp(wide, 2);
  check_close(moved.data(), Tensor::from<double>({-2, -2, 0.5, 2, kNaN, 2}), 0, 0);
  backward({moved}, {Tensor::full({6}, 3, {DType::f64, {}})});
  check_close(wide.grad(), Tensor::from<double>({0, 3, 3, 3, 3, 0}), 0, 0);
  BOOST_TEST(doubles(add_scaled(x, x, -0.5).data()) ==
             std::vector<double>({0.5, 1, 1.5, 2, 2.5, 3}));
}

BOOST_AUTO_TEST_CASE(a_cast_gradient_comes_back_in_its_own_dtype) {
  const Variable x(random_tensor({3}, DType::bf16), true);
  const Variable y = cast(x, DType::f32);
  BOOST_TEST(y.dtype() == DType::f32);
  const double third = 1.0 / 3;
  backward({y}, {Tensor::full({3}, third)});
  BOOST_TEST(doubles(x.grad())[0] == double(float(bf16(float(third)))));
  BOOST_TEST(cast(x, DType::bf16).id() == x.id());
}

BOOST_AUTO_TEST_CASE(refuses_what_does_not_fit) {
  const Variable x(random_tensor({2, 3}), true), y(random_tensor({3, 2}), true);
  const Variable wide(random_tensor({2, 3}, DType::f64));
  BOOST_CHECK_THROW(add_scaled(x, y), ShapeError);
  BOOST_CHECK_THROW(mul(x, wide), DTypeError);
  BOOST_CHECK_THROW(reshape(x, {4, 2}), ShapeError);
  BOOST_CHECK_THROW(transpose(x, 0, 2), ShapeError);
  BOOST_CHECK_EXCEPTION(split_columns(x, {1, 1}), ShapeError,
                        says("split_columns: sizes sum to 2, x is [2, 3]"));
  BOOST_CHECK_THROW(split_columns(x, {4, -1}), ShapeError);
  BOOST_CHECK_THROW(split_columns(Variable(random_tensor({6})), {6}), ShapeError);
  BOOST_CHECK_EXCEPTION(concat_rows({}), ShapeError, says("concat_rows: no parts"));
  BOOST_CHECK_THROW(concat_rows({x, y}), ShapeError);
  BOOST_CHECK_THROW(concat_rows({x, wide}), DTypeError);
  BOOST_CHECK_EXCEPTION(cast(x, DType::i32), DTypeError, says("cast: from f32 to i32"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
