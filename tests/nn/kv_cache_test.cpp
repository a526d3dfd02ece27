#include "nn/kv_cache.h"

#include "nn/attention.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

const ExecutionPlan kPlan(4, {.layers = 2, .visits = 2});  // six slots

/// k or v [batch, count, 2, 3] whose elements all are `value`.
Tensor filled(int64_t batch, int64_t count, double value) {
  return Tensor::full({batch, count, 2, 3}, value);
}
/// First element of position `at` of sequence b.
double stored(const Tensor& slot, int64_t b, int64_t at) {
  return doubles(slot.slice(0, b, b + 1).slice(1, at, at + 1))[0];
}

BOOST_AUTO_TEST_SUITE(kv_cache)

BOOST_AUTO_TEST_CASE(one_slot_per_step_that_writes) {
  // CASES 36: bytes = 2 * 6 * kv_heads * head_dim * size.
  const KvCache cache(kPlan, 2, 5, 2, 3, {});
  BOOST_TEST(cache.slots() == 6);
  BOOST_TEST(cache.batch() == 2);
  BOOST_TEST(cache.capacity() == 5);
  BOOST_TEST(cache.bytes_per_token() == 2 * 6 * 2 * 3 * 4);
  BOOST_TEST(KvCache(kPlan, 1, 5, 2, 3, {DType::bf16, {}}).bytes_per_token() == 2 * 6 * 2 * 3 * 2);
  const ExecutionPlan first(4, {.layers = 2, .visits = 2, .kv = LoopKv::first});
  BOOST_TEST(KvCache(first, 1, 5, 2, 3, {}).bytes_per_token() == 2 * 4 * 2 * 3 * 4);
  BOOST_TEST(to_string(cache.keys(0).shape()) == "[2, 5, 2, 3]");
}

BOOST_AUTO_TEST_CASE(slots_do_not_touch_each_other) {
  const KvCache cache(kPlan, 1, 2, 2, 3, {});
  for (int64_t slot = 0; slot < cache.slots(); ++slot)
    cache.write(slot, filled(1, 2, double(slot)), filled(1, 2, double(10 + slot)));
  for (int64_t slot = 0; slot < cache.slots(); ++slot) {
    for (const double k : doubles(cache.keys(slot))) BOOST_TEST(k == double(slot));
    for (const double v : doubles(cache.values(slot))) BOOST_TEST(v == double(10 + slot));
  }
}

BOOST_AUTO_TEST_CASE(the_first_token_is_stored) {
  // CASES 46.
  KvCache cache(kPlan, 1, 3, 2, 3, {});
  cache.write(0, filled(1, 1, 7), filled(1, 1, 8));
  cache.advance({1});
  cache.write(0, filled(1, 1, 9), filled(1, 1, 10));
  BOOST_TEST(stored(cache.keys(0), 0, 0) == 7);
  BOOST_TEST(stored(cache.values(0), 0, 0) == 8);
  BOOST_TEST(stored(cache.keys(0), 0, 1) == 9);
}

BOOST_AUTO_TEST_CASE(sequences_of_different_length) {
  KvCache cache(kPlan, 3, 6, 2, 3, {});
  cache.write(1, filled(3, 4, 1), filled(3, 4, 1));
  cache.advance({4, 0, 2});  // what stands behind a length is overwritten
  BOOST_TEST(cache.lengths() == std::vector<int64_t>({4, 0, 2}), boost::test_tools::per_element());
  cache.write(1, filled(3, 2, 5), filled(3, 2, 6));
  const std::vector<std::vector<double>> expected = {
      {1, 1, 1, 1, 5, 5}, {5, 5, 1, 1}, {1, 1, 5, 5}};
  for (size_t b = 0; b < expected.size(); ++b)
    for (size_t at = 0; at < expected[b].size(); ++at)
      BOOST_TEST(stored(cache.keys(1), int64_t(b), int64_t(at)) == expected[b][at]);
  // Writing alone moves nothing.
  BOOST_TEST(cache.lengths()[0] == 4);

  const SequenceLayout layout = SequenceLayout::behind(cache, 2);
  BOOST_TEST(layout.batch == 3);
  BOOST_TEST(layout.seq_len == 2);
  BOOST_TEST(doubles(layout.positions) == std::vector<double>({4, 5, 0, 1, 2, 3}),
             boost::test_tools::per_element());
  BOOST_TEST(doubles(layout.key_begin) == std::vector<double>(6, 0),
             boost::test_tools::per_element());
  BOOST_TEST(doubles(layout.key_end) == std::vector<double>({5, 6, 1, 2, 3, 4}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(views_and_other_dtypes_are_converted) {
  const KvCache cache(ExecutionPlan(1, {}), 2, 3, 2, 3, {DType::bf16, {}});
  const Tensor k = random_tensor({2, 3, 2, 3}, DType::f32, 1);
  cache.write(0, strided(k), k.slice(1, 0, 1).expand(k.shape()));
  check_same_bits(cache.keys(0), k.to(DType::bf16));
}

BOOST_AUTO_TEST_CASE(refusals) {
  KvCache cache(kPlan, 2, 4, 2, 3, {});
  cache.advance({1, 3});
  BOOST_CHECK_EXCEPTION(cache.write(0, filled(2, 2, 1), filled(2, 2, 1)), ShapeError,
                        says("KvCache: 3 + 2 positions pass the capacity of 4"));
  BOOST_CHECK_EXCEPTION(cache.advance({1, 2}), ShapeError,
                        says("KvCache: length 3 + 2 is outside the capacity of 4"));
  BOOST_CHECK_EXCEPTION(cache.advance({1, -1}), ShapeError, says("length 3 + -1"));
  // A refused advance moves no sequence.
  BOOST_TEST(cache.lengths()[0] == 1);
  BOOST_CHECK_EXCEPTION(cache.advance({1}), ShapeError, says("1 counts for a batch of 2"));
  BOOST_CHECK_EXCEPTION(cache.write(6, filled(2, 1, 1), filled(2, 1, 1)), ShapeError,
                        says("KvCache: slot 6 must be in [0, 6)"));
  BOOST_CHECK_THROW(cache.write(-1, filled(2, 1, 1), filled(2, 1, 1)), ShapeError);
  BOOST_CHECK_THROW(cache.write(0, filled(3, 1, 1), filled(3, 1, 1)), ShapeError);
  BOOST_CHECK_THROW(cache.write(0, filled(1, 1, 1), filled(1, 1, 1)), ShapeError);
  BOOST_CHECK_THROW(cache.write(0, filled(2, 1, 1), filled(2, 2, 1)), ShapeError);
  BOOST_CHECK_THROW(cache.write(0, Tensor::zeros({2, 1, 3, 2}), Tensor::zeros({2, 1, 3, 2})),
                    ShapeError);
  BOOST_CHECK_THROW(KvCache(kPlan, 1, -1, 2, 3, {}), ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
