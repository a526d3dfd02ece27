#include "dist/bucket_layout.h"

#include <boost/test/unit_test.hpp>

#include "tests/dist/ranks.h"

namespace smelt::dist {

using testing::says;

BOOST_AUTO_TEST_SUITE(bucket_layout)

// Worked by hand: 16 f32 are 64 bytes. Buckets of 256 bytes hold 64 elements.
BOOST_AUTO_TEST_CASE(small_example_by_hand) {
  const BucketLayout layout = plan_buckets({10, 20, 30, 100, 5}, 2, 256, DType::f32);
  const std::vector<Range> parameters = {{0, 10}, {16, 36}, {64, 94}, {96, 196}, {224, 229}};
  const std::vector<Range> buckets = {{0, 64}, {64, 96}, {96, 224}, {224, 256}};
  BOOST_TEST((layout.parameters == parameters));
  BOOST_TEST((layout.buckets == buckets));
  BOOST_TEST((layout.bucket_of == std::vector<int64_t>{0, 0, 1, 2, 3}));
  BOOST_TEST(layout.numel == 256);
  BOOST_TEST(
      (layout.owned_ranges(0) == std::vector<Range>{{0, 32}, {64, 80}, {96, 160}, {224, 240}}));
  BOOST_TEST(
      (layout.owned_ranges(1) == std::vector<Range>{{32, 64}, {80, 96}, {160, 224}, {240, 256}}));
}

BOOST_AUTO_TEST_CASE(rules_hold_for_many_layouts) {
  const std::vector<int64_t> sizes = {0, 1, 7, 64, 0, 65, 1000, 3, 3, 3, 129, 5000, 0};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const int64_t alignment = 64 / size_of(dtype);
    for (const int group_size : {1, 2, 3, 4, 7}) {
      for (const int64_t bytes : {1, 64, 1000, 1 << 12, 1 << 20}) {
        BOOST_TEST_CONTEXT("dtype=" << dtype << " ranks=" << group_size << " bytes=" << bytes) {
          const BucketLayout layout = plan_buckets(sizes, group_size, bytes, dtype);
          BOOST_TEST_REQUIRE(layout.parameters.size() == sizes.size());
          int64_t end = 0;
          for (size_t p = 0; p < sizes.size(); ++p) {
            const Range& range = layout.parameters[p];
            const Range& bucket = layout.buckets[size_t(layout.bucket_of[p])];
            BOOST_TEST(range.size() == sizes[p]);
            BOOST_TEST(range.begin >= end);
            BOOST_TEST(range.begin % alignment == 0);
            BOOST_TEST(range.begin >= bucket.begin);
            BOOST_TEST(range.end <= bucket.end);
            end = range.end;
          }
          int64_t next = 0;
          std::vector<int64_t> covered(size_t(layout.numel), 0);
          for (size_t b = 0; b < layout.buckets.size(); ++b) {
            BOOST_TEST(layout.buckets[b].begin == next);
            BOOST_TEST(layout.buckets[b].size() > 0);
            BOOST_TEST(layout.buckets[b].size() % (alignment * group_size) == 0);
            next = layout.buckets[b].end;
            int64_t parameters = 0;
            int64_t last = layout.buckets[b].begin;
            for (size_t p = 0; p < sizes.size(); ++p) {
              if (layout.bucket_of[p] != int64_t(b) || sizes[p] == 0) continue;
              ++parameters;
              last = layout.parameters[p].end;
            }
            // Only a parameter on its own may exceed the bucket size.
            if ((last - layout.buckets[b].begin) * size_of(dtype) > bytes)
              BOOST_TEST(parameters == 1);
          }
          BOOST_TEST(next == layout.numel);
          for (int r = 0; r < group_size; ++r) {
            for (const Range& range : layout.owned_ranges(r)) {
              for (int64_t i = range.begin; i < range.end; ++i) ++covered[size_t(i)];
            }
          }
          BOOST_TEST((covered == std::vector<int64_t>(size_t(layout.numel), 1)));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(no_parameters_need_no_buckets) {
  const BucketLayout layout = plan_buckets({}, 4, 1 << 20, DType::f32);
  BOOST_TEST(layout.numel == 0);
  BOOST_TEST(layout.buckets.empty());
  BOOST_TEST(layout.owned_ranges(3).empty());
}

BOOST_AUTO_TEST_CASE(refuses_sizes_without_meaning) {
  BOOST_CHECK_EXCEPTION(plan_buckets({1}, 0, 64, DType::f32), ConfigError, says("group size 0"));
  BOOST_CHECK_EXCEPTION(plan_buckets({1}, 1, 0, DType::f32), ConfigError,
                        says("bucket size 0 bytes"));
  BOOST_CHECK_EXCEPTION(plan_buckets({1, -2}, 1, 64, DType::f32), ConfigError,
                        says("parameter 1 has the negative size -2"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::dist
