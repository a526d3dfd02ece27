#include "dist/collectives.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <boost/test/unit_test.hpp>

#include "tests/dist/ranks.h"

namespace smelt::dist {

using testing::filled;
using testing::kAllDTypes;
using testing::kChunkLimits;
using testing::kSummedDTypes;
using testing::says;
using testing::values_of;

namespace {

/// Numbers whose sum depends on the order in which they are added.
Tensor rough(int64_t n, DType dtype, int rank) {
  return filled(n, dtype,
                [&](int64_t i) { return std::sin(double(i * 31 + rank * 17 + 1)) * 1e3 / 7; });
}

/// The sum over ranks in rank order, computed alone.
template <typename T>
std::vector<T> sum_in_rank_order(int64_t n, DType dtype, int size) {
  std::vector<T> total = rough(n, dtype, 0).to_vector<T>();
  for (int r = 1; r < size; ++r) {
    const std::vector<T> x = rough(n, dtype, r).to_vector<T>();
    for (size_t i = 0; i < total.size(); ++i) total[i] += x[i];
  }
  return total;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(collectives)

BOOST_AUTO_TEST_CASE(all_reduce_sums_every_dtype_and_length) {
  for (const int64_t limit : kChunkLimits) {
    const Group group = World(1, limit).world();
    for (const DType dtype : kSummedDTypes) {
      for (const int64_t n : {0, 1, 2, 3, 7, 8, 61, 1024, 1025, 40000}) {
        BOOST_TEST_CONTEXT("limit=" << limit << " dtype=" << dtype << " n=" << n) {
          if (limit == 7 && n > 2000) continue;  // thousands of tiny messages show nothing new
          const Tensor x =
              filled(n, dtype, [&](int64_t i) { return i % 100 + 1000 * (group.rank() + 1); });
          all_reduce_sum_(x, group);
          const int64_t p = group.size();
          const Tensor expected =
              filled(n, dtype, [&](int64_t i) { return p * (i % 100) + 1000 * p * (p + 1) / 2; });
          BOOST_TEST((values_of(x) == values_of(expected)));
        }
      }
    }
  }
}

// The chunk limit and the way the sum is organised must not show in the bits (CASE 107).
BOOST_AUTO_TEST_CASE(sums_are_formed_in_rank_order_whatever_the_chunks) {
  for (const int64_t limit : {kDefaultChunkElements, int64_t(7), int64_t(100)}) {
    const Group group = World(1, limit).world();
    for (const int64_t n : {5, 500, 1500}) {
      BOOST_TEST_CONTEXT("limit=" << limit << " n=" << n) {
        const Tensor x32 = rough(n, DType::f32, group.rank());
        const Tensor x64 = rough(n, DType::f64, group.rank());
        all_reduce_sum_(x32, group);
        all_reduce_sum_(x64, group);
        BOOST_TEST(
            (x32.to_vector<float>() == sum_in_rank_order<float>(n, DType::f32, group.size())));
        BOOST_TEST(
            (x64.to_vector<double>() == sum_in_rank_order<double>(n, DType::f64, group.size())));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(large_integers_are_exact) {
  const Group group = World(1).world();
  const int64_t large = (int64_t(1) << 53) + 1;
  BOOST_TEST(all_reduce_sum(large, group) == large * group.size());
  const Tensor x = Tensor::from(std::vector<int64_t>{large});
  all_reduce_sum_(x, group);
  BOOST_TEST(x.to_vector<int64_t>()[0] == large * group.size());
}

BOOST_AUTO_TEST_CASE(scalars_are_reduced) {
  const Group group = World(1).world();
  const int last = group.size() - 1;
  BOOST_TEST(all_reduce_sum(group.rank() + 0.5, group) ==
             last * group.size() / 2 + group.size() * 0.5);
  BOOST_TEST(all_reduce_max(int64_t(group.rank()), group) == last);
  BOOST_TEST(all_reduce_min(int64_t(group.rank() + 3), group) == 3);
  BOOST_TEST(all_reduce_max(-double(group.rank()) - 1, group) == -1.0);
  BOOST_TEST(all_reduce_min(-double(group.rank()) - 1, group) == -double(last) - 1);
  const std::vector<int64_t> ranks = all_gather(int64_t(group.rank()), group);
  BOOST_TEST_REQUIRE(int(ranks.size()) == group.size());
  for (int r = 0; r <= last; ++r) BOOST_TEST(ranks[size_t(r)] == r);
}

// A comparison with NaN is false, so a plain maximum would lose it and let a bad step through.
BOOST_AUTO_TEST_CASE(not_a_number_on_one_rank_reaches_all) {
  const Group group = World(1).world();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int bad = 0; bad < group.size(); ++bad) {
    const double x = group.rank() == bad ? nan : 1.0;
    BOOST_TEST(std::isnan(all_reduce_max(x, group)));
    BOOST_TEST(std::isnan(all_reduce_min(x, group)));
    BOOST_TEST(std::isnan(all_reduce_sum(x, group)));
  }
}

BOOST_AUTO_TEST_CASE(all_ranks_reach_the_same_verdict) {
  const Group group = World(1).world();
  BOOST_TEST(!any(false, group));
  BOOST_TEST(first_error("", group).empty());
  for (int bad = 0; bad < group.size(); ++bad) {
    BOOST_TEST(any(group.rank() == bad, group));
    const std::string mine = group.rank() >= bad ? "from " + std::to_string(group.rank()) : "";
    BOOST_TEST(first_error(mine, group) == "from " + std::to_string(bad));
  }
}

BOOST_AUTO_TEST_CASE(broadcast_copies_any_dtype_from_any_root) {
  for (const int64_t limit : kChunkLimits) {
    const Group group = World(1, limit).world();
    for (const DType dtype : kAllDTypes) {
      for (int root = 0; root < group.size(); ++root) {
        for (const int64_t n : {0, 1, 7, 8, 50}) {
          BOOST_TEST_CONTEXT("limit=" << limit << " dtype=" << dtype << " root=" << root
                                      << " n=" << n) {
            const auto from = [&](int r) {
              return filled(n, dtype, [&](int64_t i) { return i + 64 * r; });
            };
            const Tensor x = from(group.rank());
            broadcast_(x, root, group);
            BOOST_TEST((values_of(x) == values_of(from(root))));
          }
        }
      }
    }
    for (int root = 0; root < group.size(); ++root) {
      const std::string sent = "[model]\nhidden_size = 64\n" + std::string(1, '\0') + "end";
      BOOST_TEST(broadcast(group.rank() == root ? sent : "mine", root, group) == sent);
      BOOST_TEST(broadcast(group.rank() == root ? "" : "mine", root, group).empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(reduce_scatter_leaves_the_sum_in_the_own_part_only) {
  for (const int64_t limit : kChunkLimits) {
    const Group group = World(1, limit).world();
    const int64_t p = group.size();
    for (const DType dtype : kSummedDTypes) {
      for (const int64_t part : {0, 1, 7, 23}) {
        BOOST_TEST_CONTEXT("limit=" << limit << " dtype=" << dtype << " part=" << part) {
          const Tensor x =
              filled(part * p, dtype, [&](int64_t i) { return i + 1000 * (group.rank() + 1); });
          const std::vector<double> before = values_of(x);
          reduce_scatter_(x, group);
          const std::vector<double> after = values_of(x);
          for (int64_t i = 0; i < part * p; ++i) {
            const double sum = double(p * i + 1000 * p * (p + 1) / 2);
            const bool own = i / part == group.rank();
            BOOST_TEST(after[size_t(i)] == (own ? sum : before[size_t(i)]));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(all_gather_spreads_every_part) {
  for (const int64_t limit : kChunkLimits) {
    const Group group = World(1, limit).world();
    for (const DType dtype : kAllDTypes) {
      for (const int64_t part : {0, 1, 7, 20}) {
        BOOST_TEST_CONTEXT("limit=" << limit << " dtype=" << dtype << " part=" << part) {
          const Tensor x = filled(part * group.size(), dtype,
                                  [&](int64_t i) { return i / part == group.rank() ? i : -1; });
          all_gather_(x, group);
          BOOST_TEST((values_of(x) ==
                      values_of(filled(part * group.size(), dtype, [](int64_t i) { return i; }))));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_view_inside_a_buffer_is_reduced_without_touching_its_neighbours) {
  const Group group = World(1).world();
  const Tensor buffer = Tensor::full({4000}, 1.0);
  all_reduce_sum_(buffer.slice(0, 1000, 3000), group);
  const std::vector<float> values = buffer.to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    BOOST_TEST(values[i] == (i >= 1000 && i < 3000 ? float(group.size()) : 1.0F));
  }
}

BOOST_AUTO_TEST_CASE(refusals_name_the_rule) {
  const Group group = World(1).world();
  const Tensor half = Tensor::zeros({4}, {DType::bf16, {}});
  BOOST_CHECK_EXCEPTION(all_reduce_sum_(half, group), DTypeError,
                        says("all_reduce_sum_: bf16 is not summed"));
  BOOST_CHECK_EXCEPTION(reduce_scatter_(half, group), DTypeError, says("reduce_scatter_: bf16"));
  const Tensor turned = Tensor::zeros({2, 3}).transpose(0, 1);
  BOOST_CHECK_EXCEPTION(all_reduce_sum_(turned, group), ShapeError, says("must be contiguous"));
  BOOST_CHECK_THROW(broadcast_(Tensor(), 0, group), Error);
  BOOST_CHECK_EXCEPTION(broadcast_(Tensor::zeros({1}), group.size(), group), CommError,
                        says("broadcast_: rank " + std::to_string(group.size())));
  BOOST_CHECK_EXCEPTION(broadcast("", -1, group), CommError, says("rank -1 must be in 0.."));
  if (group.size() > 1) {
    const Tensor odd = Tensor::zeros({group.size() + 1});
    BOOST_CHECK_EXCEPTION(reduce_scatter_(odd, group), ShapeError, says("equal parts"));
    BOOST_CHECK_EXCEPTION(all_gather_(odd, group), ShapeError, says("equal parts"));
    BOOST_CHECK_EXCEPTION(all_to_all_counts({1}, group), ShapeError, says("1 counts"));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::dist
