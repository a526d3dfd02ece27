#include "dist/gradient_reducer.h"

#include <chrono>
#include <cmath>
#include <thread>

#include <boost/test/unit_test.hpp>

#include "dist/collectives.h"
#include "tests/dist/ranks.h"

namespace smelt::dist {

using testing::kChunkLimits;
using testing::says;

namespace {

const std::vector<int64_t> kSizes = {10, 200, 3, 0, 700, 64, 1, 33, 500, 5};
constexpr int64_t kBucketBytes = 1024;

/// The gradient of one rank: rough numbers in the parameters' ranges, zero in the padding.
void fill_gradients(const Tensor& flat, const BucketLayout& layout, int rank, int step) {
  flat.zero_();
  dispatch_float(flat.dtype(), "fill_gradients", [&](auto zero) {
    using T = decltype(zero);
    T* g = flat.data<T>();
    for (const Range& range : layout.parameters) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        g[i] = T(float(std::sin(double(i * 13 + rank * 7 + step * 3 + 1)) * 100));
      }
    }
  });
}

template <typename T>
std::vector<T> expected_sum(const BucketLayout& layout, int size, int step) {
  const Tensor flat = Tensor::empty({layout.numel}, {dtype_of<T>::value, {}});
  std::vector<T> total;
  for (int r = 0; r < size; ++r) {
    fill_gradients(flat, layout, r, step);
    const std::vector<T> x = flat.to_vector<T>();
    if (r == 0) {
      total = x;
    } else {
      for (size_t i = 0; i < x.size(); ++i) total[i] += x[i];
    }
  }
  return total;
}

template <typename T>
void check_owned_sums(const Tensor& flat, const GradientReducer& reducer, const Group& group,
                      int step) {
  const std::vector<T> values = flat.to_vector<T>();
  const std::vector<T> expected = expected_sum<T>(reducer.layout(), group.size(), step);
  BOOST_TEST_REQUIRE(reducer.owned_ranges().size() == reducer.layout().buckets.size());
  for (const Range& range : reducer.owned_ranges()) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      BOOST_TEST(values[size_t(i)] == expected[size_t(i)]);
    }
  }
}

void all_ready_backwards(GradientReducer& reducer) {
  for (int64_t p = int64_t(kSizes.size()) - 1; p >= 0; --p) reducer.ready(p);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gradient_reducer)

BOOST_AUTO_TEST_CASE(owned_ranges_hold_the_sums_with_and_without_overlap) {
  for (const int64_t limit : kChunkLimits) {
    const Group group = World(1, limit).world();
    for (const bool overlap : {true, false}) {
      for (const DType dtype : {DType::f32, DType::f64}) {
        const BucketLayout layout = plan_buckets(kSizes, group.size(), kBucketBytes, dtype);
        BOOST_TEST_REQUIRE(layout.buckets.size() > 4);  // more than are under way at once
        const Tensor flat = Tensor::zeros({layout.numel}, {dtype, {}});
        GradientReducer reducer(flat, group, layout, {overlap, {}});
        for (int step = 0; step < 3; ++step) {
          BOOST_TEST_CONTEXT("limit=" << limit << " overlap=" << overlap << " dtype=" << dtype
                                      << " step=" << step) {
            fill_gradients(flat, layout, group.rank(), step);
            all_ready_backwards(reducer);
            reducer.finish();
            if (dtype == DType::f32) {
              check_owned_sums<float>(flat, reducer, group, step);
            } else {
              check_owned_sums<double>(flat, reducer, group, step);
            }
            // CASE 35: each parameter exactly once per step.
            BOOST_TEST((reducer.reductions() == std::vector<int>(kSizes.size(), 1)));
            BOOST_TEST((reducer.overlapped_buckets() > 0) == overlap);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(order_of_readiness_may_differ_between_ranks) {
  const Group group = World(1).world();
  const BucketLayout layout = plan_buckets(kSizes, group.size(), kBucketBytes, DType::f32);
  const Tensor flat = Tensor::zeros({layout.numel});
  GradientReducer reducer(flat, group, layout);
  const auto n = int64_t(kSizes.size());
  for (int step = 0; step < 4; ++step) {
    fill_gradients(flat, layout, group.rank(), step);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t forwards = (k * 3 + group.rank() + step) % n;  // 3 and n have no common factor
      reducer.ready(group.rank() % 2 == 0 ? forwards : n - 1 - forwards);
    }
    reducer.finish();
    check_owned_sums<float>(flat, reducer, group, step);
    BOOST_TEST((reducer.reductions() == std::vector<int>(kSizes.size(), 1)));
  }
}

BOOST_AUTO_TEST_CASE(parameters_that_were_never_ready_are_reduced_by_finish) {
  const Group group = World(1).world();
  const BucketLayout layout = plan_buckets(kSizes, group.size(), kBucketBytes, DType::f32);
  const Tensor flat = Tensor::zeros({layout.numel});
  GradientReducer reducer(flat, group, layout);
  fill_gradients(flat, layout, group.rank(), 0);
  if (group.rank() == 0) reducer.ready(int64_t(kSizes.size()) - 1);
  reducer.finish();
  check_owned_sums<float>(flat, reducer, group, 0);
  BOOST_TEST((reducer.reductions() == std::vector<int>(kSizes.size(), 1)));
}

// A rank far ahead in backward must not wait inside ready(): the rank it would wait for may be in
// another collective that needs it. Rank 0 is ready with everything before it joins the collective
// that the others enter first.
BOOST_AUTO_TEST_CASE(ready_never_waits_for_other_ranks) {
  const Group group = World(1).world();
  const BucketLayout layout = plan_buckets(kSizes, group.size(), kBucketBytes, DType::f32);
  const Tensor flat = Tensor::zeros({layout.numel});
  GradientReducer reducer(flat, group, layout);
  for (int step = 0; step < 3; ++step) {
    fill_gradients(flat, layout, group.rank(), step);
    if (group.rank() == 0) all_ready_backwards(reducer);
    const Tensor x = Tensor::full({5000}, 1.0);
    all_reduce_sum_(x, group);
    BOOST_TEST(x.slice(0, 4999, 5000).item() == group.size());
    if (group.rank() != 0) all_ready_backwards(reducer);
    reducer.finish();
    check_owned_sums<float>(flat, reducer, group, step);
  }
}

BOOST_AUTO_TEST_CASE(poll_completes_reductions_before_finish) {
  const Group group = World(1).world();
  // Large enough for the rendezvous protocol, which needs both sides to make progress.
  const BucketLayout layout = plan_buckets({200000, 200000}, group.size(), 1 << 20, DType::f32);
  const Tensor flat = Tensor::zeros({layout.numel});
  GradientReducer reducer(flat, group, layout);
  fill_gradients(flat, layout, group.rank(), 0);
  reducer.ready(1);
  reducer.ready(0);
  const Range own = reducer.owned_ranges()[0];
  const float expected = expected_sum<float>(layout, group.size(), 0)[size_t(own.begin)];
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const float* first = flat.data<float>() + own.begin;
  while (*first != expected && std::chrono::steady_clock::now() < deadline) {
    reducer.poll();
    std::this_thread::yield();
  }
  BOOST_TEST(*first == expected);
  reducer.finish();
  check_owned_sums<float>(flat, reducer, group, 0);
  BOOST_TEST(reducer.overlapped_buckets() == 2);
}

BOOST_AUTO_TEST_CASE(a_second_ready_in_one_step_names_the_parameter) {
  const Group group = World(1).world();
  for (const bool overlap : {true, false}) {
    const BucketLayout layout = plan_buckets({4, 4}, group.size(), 64, DType::f32);
    const Tensor flat = Tensor::zeros({layout.numel});
    GradientReducer reducer(flat, group, layout, {overlap, {"embed.weight", "norm.weight"}});
    reducer.ready(1);
    BOOST_CHECK_EXCEPTION(reducer.ready(1), CommError, says("norm.weight is ready a second time"));
    BOOST_CHECK_EXCEPTION(reducer.ready(2), CommError, says("no parameter 2, there are 2"));
    reducer.finish();
    BOOST_CHECK_NO_THROW(reducer.ready(1));  // the next step begins afresh
    reducer.finish();
  }
}

// The whole cycle of a sharded optimizer: each rank changes what it owns, all ranks see it.
BOOST_AUTO_TEST_CASE(parameters_are_gathered_from_their_owners) {
  for (const int64_t limit : kChunkLimits) {
    const Group group = World(1, limit).world();
    const BucketLayout layout = plan_buckets(kSizes, group.size(), kBucketBytes, DType::f32);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor flat = Tensor::full({layout.numel}, -1, {dtype, {}});
      for (const Range& range : layout.owned_ranges(group.rank())) {
        flat.slice(0, range.begin, range.end).fill_(group.rank() + 1);
      }
      gather_parameters_(flat, layout, group);
      const std::vector<double> values = testing::values_of(flat);
      for (int r = 0; r < group.size(); ++r) {
        for (const Range& range : layout.owned_ranges(r)) {
          for (int64_t i = range.begin; i < range.end; ++i) BOOST_TEST(values[size_t(i)] == r + 1);
        }
      }
    }
  }
}

// Dense gradients go to the world, expert gradients to the ranks with the same experts, both at
// once.
BOOST_AUTO_TEST_CASE(two_reducers_on_different_groups_do_not_mix) {
  const int size = World(1).world().size();
  if (size < 2) return;
  const World world(2);
  const Group& dense_group = world.world();
  const Group& expert_group = world.expert_data();
  const BucketLayout dense_layout = plan_buckets(kSizes, size, kBucketBytes, DType::f32);
  const BucketLayout expert_layout =
      plan_buckets(kSizes, expert_group.size(), kBucketBytes, DType::f32);
  const Tensor dense = Tensor::full({dense_layout.numel}, 1);
  const Tensor expert = Tensor::full({expert_layout.numel}, 10.0 + world.expert_parallel().rank());
  GradientReducer dense_reducer(dense, dense_group, dense_layout);
  GradientReducer expert_reducer(expert, expert_group, expert_layout);
  for (int64_t p = int64_t(kSizes.size()) - 1; p >= 0; --p) {
    // Which reducer hears of a parameter first differs by rank.
    (dense_group.rank() % 2 == 0 ? dense_reducer : expert_reducer).ready(p);
    (dense_group.rank() % 2 == 0 ? expert_reducer : dense_reducer).ready(p);
  }
  dense_reducer.finish();
  expert_reducer.finish();
  for (const Range& range : dense_reducer.owned_ranges()) {
    BOOST_TEST(dense.slice(0, range.begin, range.begin + 1).item() == size);
  }
  for (const Range& range : expert_reducer.owned_ranges()) {
    BOOST_TEST(expert.slice(0, range.begin, range.begin + 1).item() ==
               expert_group.size() * (10 + world.expert_parallel().rank()));
  }
}

BOOST_AUTO_TEST_CASE(refuses_buffers_that_do_not_fit_the_layout) {
  const Group group = World(1).world();
  const BucketLayout layout = plan_buckets({4, 4}, group.size(), 64, DType::f32);
  BOOST_CHECK_EXCEPTION(GradientReducer(Tensor::zeros({layout.numel + 1}), group, layout),
                        ShapeError, says("contiguous [" + std::to_string(layout.numel) + "]"));
  BOOST_CHECK_EXCEPTION(
      GradientReducer(Tensor::zeros({layout.numel}, {DType::bf16, {}}), group, layout), DTypeError,
      says("must be f32 or f64, not bf16"));
  const BucketLayout other = plan_buckets({4, 4}, group.size() + 1, 64, DType::f32);
  BOOST_CHECK_EXCEPTION(GradientReducer(Tensor::zeros({other.numel}), group, other), ShapeError,
                        says("made for " + std::to_string(group.size() + 1) + " ranks"));
  BOOST_CHECK_EXCEPTION(
      GradientReducer(Tensor::zeros({layout.numel}), group, layout, {true, {"one"}}), ShapeError,
      says("1 names for 2 parameters"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::dist
