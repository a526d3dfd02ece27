// Counts of single operations against numbers worked out by hand.
#include "tensor/flop_counter.h"

#include "tensor/attention.h"
#include "tensor/gemm.h"
#include "tensor/loss.h"
#include "tests/testing.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

Tensor zeros(Shape shape, DType dtype = DType::f32) {
  return Tensor::zeros(std::move(shape), {dtype, {}});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(flop_counter)

BOOST_AUTO_TEST_CASE(a_product_costs_twice_its_three_sizes) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor a = zeros({2, 3}, dtype), b = zeros({4, 3}, dtype);
    const FlopCounter counter;
    matmul(a, b.transpose(0, 1));
    BOOST_CHECK_EQUAL(counter.products(), 48.0);
    matmul_(zeros({3, 3}, accumulation_dtype(dtype)), a.transpose(0, 1), a, 1, 1);
    BOOST_CHECK_EQUAL(counter.products(), 48.0 + 36.0);
    BOOST_CHECK_EQUAL(counter.total(), 48.0 + 36.0);
  }
}

BOOST_AUTO_TEST_CASE(grouped_products_count_the_rows_there_are) {
  const std::vector<int64_t> offsets = {0, 0, 5,
                                        6};  // an empty group, one of five rows, one of one
  const Tensor x = zeros({6, 2}), w = zeros({3, 2, 4}), dy = zeros({6, 4});
  const FlopCounter counter;
  grouped_matmul(x, w, offsets);
  BOOST_CHECK_EQUAL(counter.products(), 2.0 * 6 * 2 * 4);
  grouped_outer_(zeros({3, 4, 2}), dy, x, offsets);
  BOOST_CHECK_EQUAL(counter.products(), 2 * 2.0 * 6 * 2 * 4);
  grouped_matmul(zeros({0, 2}), w, {0, 0, 0, 0});
  BOOST_CHECK_EQUAL(counter.products(), 2 * 2.0 * 6 * 2 * 4);
}

BOOST_AUTO_TEST_CASE(attention_counts_the_pairs_within_the_ranges) {
  const Tensor q = zeros({1, 3, 4, 2}), k = zeros({1, 3, 2, 2});
  const Tensor begin = Tensor::from(std::vector<int32_t>{0, 0, 2}, {1, 3});
  const Tensor end = Tensor::from(std::vector<int32_t>{1, 2, 2}, {1, 3});  // 1 + 2 + 0 pairs
  const FlopCounter counter;
  const Attention forward = attention(q, k, k, begin, end, 1);
  BOOST_CHECK_EQUAL(counter.attention(), 4.0 * 3 * 4 * 2);
  attention_backward(q, q, k, k, begin, end, 1, forward);
  BOOST_CHECK_EQUAL(counter.attention(), 12.0 * 3 * 4 * 2);
  BOOST_CHECK_EQUAL(counter.products(), 0.0);
}

BOOST_AUTO_TEST_CASE(the_loss_counts_tokens_with_a_target_once) {
  const Tensor x = zeros({4, 3}), weight = zeros({5, 3});
  const Tensor targets = Tensor::from(std::vector<int32_t>{1, -1, 4, 0});
  const FlopCounter counter;
  linear_cross_entropy(x, weight, targets, false);
  BOOST_CHECK_EQUAL(counter.products(), 3 * 30.0);
  linear_cross_entropy(x, weight, targets, true);
  BOOST_CHECK_EQUAL(counter.products(), (3 + 9) * 30.0);
}

BOOST_AUTO_TEST_CASE(counters_nest_and_count_only_while_they_live) {
  const Tensor a = zeros({2, 2});
  BOOST_CHECK(!FlopCounter::counting());
  const FlopCounter outer;
  matmul(a, a);
  {
    const FlopCounter inner;
    matmul(a, a);
    BOOST_CHECK_EQUAL(inner.total(), 16.0);
  }
  matmul(a, a);
  BOOST_CHECK_EQUAL(outer.total(), 48.0);
}

BOOST_AUTO_TEST_SUITE_END()
