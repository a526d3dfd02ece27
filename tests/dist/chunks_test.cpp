#include "dist/chunks.h"

#include <limits>

#include <boost/test/unit_test.hpp>

#include "tests/dist/ranks.h"

namespace smelt::dist {

using testing::says;

BOOST_AUTO_TEST_SUITE(chunks)

// CASE 107: 262,144 rows of 8,192 bytes are 2^31 bytes.
BOOST_AUTO_TEST_CASE(two_to_the_31_bytes_are_cut) {
  constexpr int64_t kRows = 262144;
  constexpr int64_t kRowBytes = 8192;
  const ChunkPlan bytes(kRows * kRowBytes, int64_t(1) << 30);
  BOOST_TEST(bytes.size() == 2);
  BOOST_TEST(bytes.begin(1) == int64_t(1) << 30);
  BOOST_TEST(bytes.length(0) == 1 << 30);
  BOOST_TEST(bytes.length(1) == 1 << 30);

  const ChunkPlan floats(kRows * kRowBytes / 4, kDefaultChunkElements);
  BOOST_TEST(floats.size() == 4);
  for (int64_t c = 0; c < floats.size(); ++c) BOOST_TEST(floats.length(c) == 1 << 27);

  const ChunkPlan one_more(kRows * kRowBytes + 1, int64_t(1) << 30);
  BOOST_TEST(one_more.size() == 3);
  BOOST_TEST(one_more.length(2) == 1);
}

BOOST_AUTO_TEST_CASE(default_limit_keeps_the_widest_dtype_below_an_int_of_bytes) {
  BOOST_TEST(kDefaultChunkElements * size_of(DType::i64) <= std::numeric_limits<int>::max());
}

BOOST_AUTO_TEST_CASE(chunks_cover_every_element_once) {
  for (const int64_t limit : {1, 2, 7, 100}) {
    for (const int64_t count : {0, 1, 6, 7, 8, 13, 14, 15, 99}) {
      BOOST_TEST_CONTEXT("count=" << count << " limit=" << limit) {
        const ChunkPlan plan(count, limit);
        int64_t next = 0;
        for (int64_t c = 0; c < plan.size(); ++c) {
          BOOST_TEST(plan.begin(c) == next);
          BOOST_TEST(plan.length(c) >= 1);
          BOOST_TEST(plan.length(c) <= limit);
          next += plan.length(c);
        }
        BOOST_TEST(next == count);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(counts_near_2_to_the_63_do_not_overflow) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const ChunkPlan plan(most, kDefaultChunkElements);
  BOOST_TEST(plan.size() == int64_t(1) << 36);
  BOOST_TEST(plan.length(plan.size() - 1) == (1 << 27) - 1);
}

BOOST_AUTO_TEST_CASE(refuses_what_does_not_fit) {
  BOOST_CHECK_EXCEPTION(ChunkPlan(-1, 7), CommError, says("count -1"));
  BOOST_CHECK_EXCEPTION(ChunkPlan(1, 0), CommError, says("limit 0"));
  BOOST_CHECK_EXCEPTION(ChunkPlan(1, int64_t(1) << 31), CommError, says("limit 2147483648"));
  BOOST_CHECK_EXCEPTION(checked_int(int64_t(1) << 31, "rows"), CommError,
                        says("rows 2147483648 does not fit"));
  BOOST_TEST(checked_int((int64_t(1) << 31) - 1, "rows") == 2147483647);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::dist
