#include "tensor/rows.h"

#include <boost/test/unit_test.hpp>

#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

/// T tokens, N rows, H width, K slots per token.
struct Sizes {
  int64_t T, N, H, K;
};
const Sizes kSizes[] = {{3, 5, 4, 2},  {1, 1, 1, 1}, {0, 4, 3, 2},   {4, 6, 0, 2},
                        {5, 7, 67, 3}, {4, 3, 2, 0}, {9, 30, 600, 4}};

std::vector<double> weights_or_ones(const Tensor& weights, int64_t n) {
  return weights.defined() ? doubles(weights) : std::vector<double>(size_t(n), 1.0);
}

Tensor naive_gather(const Tensor& x, const Tensor& index, const Tensor& weights) {
  const auto H = size_t(x.dim(1));
  const std::vector<double> a = doubles(x), i = doubles(index);
  const std::vector<double> w = weights_or_ones(weights, index.numel());
  std::vector<double> out(i.size() * H);
  for (size_t n = 0; n < out.size(); ++n) out[n] = w[n / H] * a[size_t(i[n / H]) * H + n % H];
  return Tensor::from(out, {index.dim(0), x.dim(1)});
}

Tensor naive_combine(const Tensor& rows, const Tensor& slots, const Tensor& weights) {
  const auto T = size_t(slots.dim(0)), K = size_t(slots.dim(1)), H = size_t(rows.dim(1));
  const std::vector<double> a = doubles(rows), row = doubles(slots);
  const std::vector<double> w = weights_or_ones(weights, slots.numel());
  std::vector<double> out(T * H);
  for (size_t t = 0; t < T; ++t) {
    for (size_t s = t * K; s < (t + 1) * K; ++s) {
      for (size_t h = 0; h < H; ++h) out[t * H + h] += w[s] * a[size_t(row[s]) * H + h];
    }
  }
  return Tensor::from(out, {slots.dim(0), rows.dim(1)});
}

Tensor naive_weights_grad(const Tensor& dy, const Tensor& rows, const Tensor& slots) {
  const auto K = size_t(slots.dim(1)), H = size_t(rows.dim(1));
  const std::vector<double> d = doubles(dy), a = doubles(rows), row = doubles(slots);
  std::vector<double> out(row.size());
  for (size_t s = 0; s < out.size(); ++s) {
    for (size_t h = 0; h < H; ++h) out[s] += d[s / K * H + h] * a[size_t(row[s]) * H + h];
  }
  return Tensor::from(out, slots.shape());
}

Tensor naive_scatter(const Tensor& target, const Tensor& index, const Tensor& rows, double alpha) {
  const auto H = size_t(rows.dim(1));
  std::vector<double> out = doubles(target);
  const std::vector<double> i = doubles(index), a = doubles(rows);
  for (size_t n = 0; n < a.size(); ++n) out[size_t(i[n / H]) * H + n % H] += alpha * a[n];
  return Tensor::from(out, target.shape());
}

BOOST_AUTO_TEST_SUITE(rows)

BOOST_AUTO_TEST_CASE(every_operation_matches_a_naive_reference) {
  for (const DType dtype : kFloating) {
    const DType full = accumulation_dtype(dtype);
    for (const auto& [T, N, H, K] : kSizes) {
      BOOST_TEST_CONTEXT(dtype << " T " << T << " N " << N << " H " << H << " K " << K) {
        const Tensor x = random_tensor({N, H}, dtype, 1), dy = random_tensor({T, H}, dtype, 2);
        const Tensor index = random_indices({T}, N, 3), slots = random_indices({T, K}, N, 4);
        const Tensor w = random_tensor({T}, full, 5), ws = random_tensor({T, K}, full, 6);
        check_close(gather_rows(x, index), naive_gather(x, index, {}), 0, 0);
        check_close(gather_rows(x, index, w), naive_gather(x, index, w),
                    tolerance::elementwise(dtype, 1, 10));
        check_close(combine_rows(x, slots), naive_combine(x, slots, {}),
                    tolerance::sum(dtype, K, 10));
        check_close(combine_rows(x, slots, ws), naive_combine(x, slots, ws),
                    tolerance::sum(dtype, K, 10));
        const Tensor grad = combine_weights_grad(dy, x, slots);
        BOOST_TEST(grad.dtype() == full);
        check_close(grad, naive_weights_grad(dy, x, slots), tolerance::sum(full, H, 10));
        for (const DType to : kFullPrecision) {
          if (to == DType::f32 && dtype == DType::f64) continue;
          const Tensor target = random_tensor({N, H}, to, 7);
          const Tensor expected = naive_scatter(target, index, dy, -0.3);
          scatter_add_rows_(target, index, dy, -0.3);
          check_close(target, expected, tolerance::sum(to, T, 10));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(gathering_copies_any_dtype_exactly) {
  const Tensor index = Tensor::from(std::vector<int32_t>{2, 0, 2});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64}) {
    const Tensor x = Tensor::from(std::vector<int64_t>{1, 2, 3, 4, 5, 6}, {3, 2}).to(dtype);
    const Tensor expected = Tensor::from(std::vector<int64_t>{5, 6, 1, 2, 5, 6}, {3, 2});
    check_same_bits(gather_rows(x, index), expected.to(dtype));
  }
}

BOOST_AUTO_TEST_CASE(combine_undoes_gather) {
  // Each of 50 tokens goes to two rows of a permuted buffer and comes back with weights 1/4, 3/4.
  const Tensor x = random_tensor({50, 33});
  std::vector<int32_t> row_of_slot(100), token_of_row(100);
  for (int i = 0; i < 100; ++i) {
    row_of_slot[size_t(i)] = i * 37 % 100;
    token_of_row[size_t(i * 37 % 100)] = i / 2;
  }
  const Tensor rows = gather_rows(x, Tensor::from(token_of_row));
  const Tensor weights = Tensor::zeros({50, 2});
  weights.slice(1, 0, 1).fill_(0.25);
  weights.slice(1, 1, 2).fill_(0.75);
  check_close(combine_rows(rows, Tensor::from(row_of_slot, {50, 2}), weights), x, 1e-6, 0);
}

BOOST_AUTO_TEST_CASE(sums_run_in_ascending_order) {
  // 2^24 + 1 + 1 loses both ones in f32, 1 + 1 + 2^24 keeps them.
  const Tensor rows = Tensor::from(std::vector<float>{0x1p24f, 1, 1}, {3, 1});
  const auto slots = [](std::vector<int32_t> order) { return Tensor::from(order, {1, 3}); };
  BOOST_TEST(combine_rows(rows, slots({0, 1, 2})).item() == 0x1p24);
  BOOST_TEST(combine_rows(rows, slots({1, 2, 0})).item() == 0x1p24 + 2);
  const Tensor same = Tensor::zeros({3}, {DType::i32, {}});
  const Tensor target = Tensor::zeros({1, 1});
  scatter_add_rows_(target, same, rows);
  BOOST_TEST(target.item() == 0x1p24);
  target.fill_(0);
  const Tensor reversed = Tensor::from(std::vector<float>{1, 1, 0x1p24f}, {3, 1});
  scatter_add_rows_(target, same, reversed);
  BOOST_TEST(target.item() == 0x1p24 + 2);
}

// Case 53.
BOOST_AUTO_TEST_CASE(strided_inputs_give_the_bits_of_contiguous_ones) {
  for (const DType dtype : kFloating) {
    const DType full = accumulation_dtype(dtype);
    const Tensor x = random_tensor({8, 10}, dtype, 1), dy = random_tensor({6, 10}, dtype, 2);
    const Tensor index = random_indices({6}, 8, 3), slots = random_indices({6, 2}, 8, 4);
    const Tensor ws = random_tensor({6, 2}, full, 5);
    check_same_bits(gather_rows(strided(x), index), gather_rows(x, index));
    check_same_bits(combine_rows(strided(x), strided(slots), strided(ws)),
                    combine_rows(x, slots, ws));
    check_same_bits(combine_weights_grad(strided(dy), strided(x), strided(slots)),
                    combine_weights_grad(dy, x, slots));
    const Tensor wide = random_tensor({6, 1}, dtype, 6).expand({6, 10});
    check_same_bits(combine_weights_grad(wide, x, slots),
                    combine_weights_grad(wide.clone(), x, slots));
    const Tensor a = Tensor::zeros({8, 10}, {full, {}}), b = a.clone();
    scatter_add_rows_(a, index, strided(dy));
    scatter_add_rows_(b, index, dy);
    check_same_bits(a, b);
  }
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_number_of_threads) {
  const Tensor x = random_tensor({700, 300}), slots = random_indices({500, 3}, 700, 2);
  const Tensor ws = random_tensor({500, 3}, DType::f32, 3), dy = random_tensor({500, 300});
  const Tensor few = random_indices({700}, 3, 4), many = random_indices({700}, 200000, 5);
  check_same_bits_for_any_threads([&] {
    const Tensor target = Tensor::zeros({3, 300}), sparse = Tensor::zeros({200000, 32});
    scatter_add_rows_(target, few, x, 0.7);
    scatter_add_rows_(sparse, many, x.slice(1, 0, 32), 0.7);
    return std::vector<Tensor>{gather_rows(x, slots.reshape({-1}), ws.reshape({-1})),
                               combine_rows(x, slots, ws), combine_weights_grad(dy, x, slots),
                               target, sparse};
  });
}

BOOST_AUTO_TEST_CASE(bad_indices_are_named) {
  const Tensor x = Tensor::zeros({4, 2});
  const auto at = [](std::vector<int32_t> i) { return Tensor::from(i); };
  BOOST_CHECK_EXCEPTION(gather_rows(x, at({0, 3, 4})), ShapeError,
                        says("gather_rows: index[2] is 4, must be in [0, 4)"));
  BOOST_CHECK_EXCEPTION(gather_rows(x, at({-1, 9})), ShapeError,
                        says("gather_rows: index[0] is -1"));
  BOOST_CHECK_EXCEPTION(
      combine_rows(x, at({0, 1, 2, 7}).view({2, 2})), ShapeError,
      says("combine_rows: row_of_slot[3] is 7, must be in [0, 4); row_of_slot has "
           "shape [2, 2]"));
  BOOST_CHECK_EXCEPTION(combine_weights_grad(Tensor::zeros({1, 2}), x, at({5}).view({1, 1})),
                        ShapeError, says("combine_weights_grad: row_of_slot[0] is 5"));
  BOOST_CHECK_EXCEPTION(scatter_add_rows_(x, at({4}), Tensor::zeros({1, 2})), ShapeError,
                        says("scatter_add_rows_: index[0] is 4, must be in [0, 4)"));
  BOOST_CHECK_THROW(gather_rows(Tensor::zeros({0, 2}), at({0})), ShapeError);
  std::vector<int32_t> long_index(40000, 3);
  long_index[39999] = 4;
  long_index[25000] = -7;
  BOOST_CHECK_EXCEPTION(gather_rows(x, Tensor::from(long_index)), ShapeError,
                        says("index[25000] is -7"));
}

BOOST_AUTO_TEST_CASE(refusals_name_the_argument_and_both_shapes) {
  const Tensor x = Tensor::zeros({4, 2}), index = Tensor::zeros({3}, {DType::i32, {}});
  const Tensor slots = Tensor::zeros({3, 2}, {DType::i32, {}});
  BOOST_CHECK_EXCEPTION(gather_rows(x, index.to(DType::i64)), DTypeError,
                        says("gather_rows: index must be i32, is i64"));
  BOOST_CHECK_EXCEPTION(gather_rows(x, index, Tensor::zeros({4})), ShapeError,
                        says("gather_rows: weights must be [3], shape is [4]"));
  BOOST_CHECK_EXCEPTION(
      gather_rows(x.to(DType::bf16), index, Tensor::zeros({3}, {DType::bf16, {}})), DTypeError,
      says("gather_rows: weights must be f32, is bf16"));
  BOOST_CHECK_EXCEPTION(gather_rows(x.to(DType::i32), index, Tensor::zeros({3})), DTypeError,
                        says("gather_rows: x with weights must be f32, bf16 or f64, is i32"));
  BOOST_CHECK_EXCEPTION(gather_rows(Tensor::zeros({4}), index), ShapeError,
                        says("gather_rows: x must have 2 dimensions, shape is [4]"));
  BOOST_CHECK_EXCEPTION(combine_rows(x, slots, Tensor::zeros({2, 3})), ShapeError,
                        says("combine_rows: weights must be [3, 2], shape is [2, 3]"));
  BOOST_CHECK_EXCEPTION(combine_weights_grad(Tensor::zeros({3, 3}), x, slots), ShapeError,
                        says("combine_weights_grad: dy [3, 3] must have the width of rows [4, 2] "
                             "and the tokens of row_of_slot [3, 2]"));
  BOOST_CHECK_EXCEPTION(scatter_add_rows_(x, index, Tensor::zeros({3, 5})), ShapeError,
                        says("scatter_add_rows_: target [4, 2] and rows [3, 5] differ in width"));
  BOOST_CHECK_EXCEPTION(scatter_add_rows_(x, index, Tensor::zeros({2, 2})), ShapeError,
                        says("scatter_add_rows_: index must be [2], shape is [3]"));
  BOOST_CHECK_EXCEPTION(scatter_add_rows_(x.to(DType::bf16), index, Tensor::zeros({3, 2})),
                        DTypeError, says("scatter_add_rows_: target must be f32 or f64, is bf16"));
  BOOST_CHECK_EXCEPTION(
      scatter_add_rows_(Tensor::zeros({2, 4}).transpose(0, 1), index, Tensor::zeros({3, 2})),
      ShapeError, says("scatter_add_rows_: target of shape [4, 2] must be contiguous"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
