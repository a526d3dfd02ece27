#include <boost/test/unit_test.hpp>

#include "dist/collectives.h"
#include "tests/dist/ranks.h"

namespace smelt::dist {

using testing::filled;
using testing::kAllDTypes;
using testing::kChunkLimits;
using testing::says;
using testing::values_of;

namespace {

using Counts = std::vector<std::vector<int64_t>>;  // [from][to]

/// Layouts of sends that have broken such exchanges: imbalance, empty pairs, a rank without rows.
std::vector<Counts> layouts(int size) {
  const auto p = size_t(size);
  const Counts none(p, std::vector<int64_t>(p, 0));
  std::vector<Counts> all{none};
  Counts ragged = none;
  Counts all_to_first = none;
  Counts last_has_none = none;
  Counts last_gets_none = none;
  for (size_t from = 0; from < p; ++from) {
    all_to_first[from][0] = int64_t(from) + 2;
    for (size_t to = 0; to < p; ++to) {
      ragged[from][to] = int64_t((from * 3 + to * 2) % 4);
      last_has_none[from][to] = from + 1 == p ? 0 : int64_t(to) + 1;
      last_gets_none[from][to] = to + 1 == p ? 0 : 3;
    }
  }
  all.insert(all.end(), {ragged, all_to_first, last_has_none, last_gets_none});
  if (size == 2) all.push_back({{3, 0}, {1, 2}});
  return all;
}

/// A row that says where it comes from, where it goes and which it is.
double mark(size_t from, size_t to, int64_t row) {
  return double(from) * 64 + double(to) * 16 + double(row);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(all_to_all)

BOOST_AUTO_TEST_CASE(counts_are_transposed) {
  const Group group = World(1).world();
  const auto p = size_t(group.size());
  for (const size_t each : {0, 1, 3}) {
    std::vector<int64_t> send;
    std::vector<int64_t> expected;
    for (size_t other = 0; other < p; ++other) {
      for (size_t e = 0; e < each; ++e) {
        send.push_back(int64_t(group.rank()) * 100 + int64_t(other) * 10 + int64_t(e));
        expected.push_back(int64_t(other) * 100 + int64_t(group.rank()) * 10 + int64_t(e));
      }
    }
    BOOST_TEST((all_to_all_counts(send, group) == expected));
  }
  const int64_t large = (int64_t(1) << 40) + group.rank();
  const std::vector<int64_t> received = all_to_all_counts(std::vector<int64_t>(p, large), group);
  for (size_t r = 0; r < p; ++r) BOOST_TEST(received[r] == (int64_t(1) << 40) + int64_t(r));
}

BOOST_AUTO_TEST_CASE(rows_arrive_in_rank_order_and_return_home) {
  for (const int64_t limit : kChunkLimits) {
    const Group group = World(1, limit).world();
    const auto p = size_t(group.size());
    const auto me = size_t(group.rank());
    const std::vector<Counts> all = layouts(group.size());
    for (size_t layout = 0; layout < all.size(); ++layout) {
      for (const DType dtype : kAllDTypes) {
        for (const int64_t width : {1, 3, 10}) {
          BOOST_TEST_CONTEXT("limit=" << limit << " layout=" << layout << " dtype=" << dtype
                                      << " width=" << width) {
            std::vector<double> rows;
            std::vector<double> expected;
            int64_t sent = 0;
            int64_t received = 0;
            for (size_t other = 0; other < p; ++other) {
              for (int64_t row = 0; row < all[layout][me][other]; ++row, ++sent) {
                rows.insert(rows.end(), size_t(width), mark(me, other, row));
              }
              for (int64_t row = 0; row < all[layout][other][me]; ++row, ++received) {
                expected.insert(expected.end(), size_t(width), mark(other, me, row));
              }
            }
            const std::vector<int64_t>& send_rows = all[layout][me];
            const std::vector<int64_t> recv_rows = all_to_all_counts(send_rows, group);
            const Tensor x = Tensor::from(rows, {sent, width}).to(dtype);
            const Tensor y = all_to_all_rows(x, send_rows, recv_rows, group);
            BOOST_TEST((y.shape() == Shape{received, width}));
            BOOST_TEST(y.dtype() == dtype);
            BOOST_TEST((values_of(y) == expected));
            const Tensor back = all_to_all_rows(y, recv_rows, send_rows, group);
            BOOST_TEST((values_of(back) == rows));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(takes_views_and_any_number_of_dimensions) {
  const Group group = World(1).world();
  const auto p = size_t(group.size());
  const int64_t n = int64_t(p) * 2;
  const std::vector<int64_t> two(p, 2);
  const Tensor turned =
      filled(3 * n, DType::f32, [&](int64_t i) { return i + 1000 * group.rank(); })
          .view({3, n})
          .transpose(0, 1);
  const Tensor y = all_to_all_rows(turned, two, two, group);
  BOOST_TEST((y.shape() == Shape{n, 3}));
  const std::vector<double> values = values_of(y);
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t column = 0; column < 3; ++column) {
      const int64_t source_row = group.rank() * 2 + row % 2;
      BOOST_TEST(values[size_t(row * 3 + column)] ==
                 double(column * n + source_row + 1000 * (row / 2)));
    }
  }
  const Tensor flat = filled(n, DType::i64, [](int64_t i) { return i; });
  BOOST_TEST((all_to_all_rows(flat, two, two, group).shape() == Shape{n}));
  const Tensor cube = Tensor::zeros({n, 2, 5});
  BOOST_TEST((all_to_all_rows(cube, two, two, group).shape() == Shape{n, 2, 5}));
  const Tensor thin = Tensor::zeros({n, 0});
  BOOST_TEST((all_to_all_rows(thin, two, two, group).shape() == Shape{n, 0}));
}

BOOST_AUTO_TEST_CASE(refuses_counts_that_do_not_fit_before_it_sends) {
  const Group group = World(1).world();
  const auto p = size_t(group.size());
  const std::vector<int64_t> ones(p, 1);
  const Tensor x = Tensor::zeros({int64_t(p), 2});
  BOOST_CHECK_EXCEPTION(all_to_all_rows(Tensor::zeros({int64_t(p) + 1, 2}), ones, ones, group),
                        ShapeError, says("they add up to " + std::to_string(p)));
  BOOST_CHECK_EXCEPTION(all_to_all_rows(x, std::vector<int64_t>(p + 1, 1), ones, group), ShapeError,
                        says("one count per rank"));
  std::vector<int64_t> negative = ones;
  negative[0] = -1;
  BOOST_CHECK_EXCEPTION(all_to_all_rows(x, ones, negative, group), ShapeError,
                        says("counts for rank 0 are negative"));
  std::vector<int64_t> differs = ones;
  differs[size_t(group.rank())] = 2;
  BOOST_CHECK_EXCEPTION(all_to_all_rows(x, ones, differs, group), ShapeError,
                        says("sends itself 1 rows but expects 2"));
}

// Rank 0 sends two rows where rank 1 expects three: an error, not three rows of which one is junk.
BOOST_AUTO_TEST_CASE(a_message_of_another_length_is_an_error) {
  const Group group = World(1).world();
  if (group.size() != 2) return;
  const bool sender = group.rank() == 0;
  const Tensor x = Tensor::zeros({sender ? 2 : 0, 4});
  const std::vector<int64_t> send = {0, sender ? 2 : 0};
  const std::vector<int64_t> receive = {sender ? 0 : 3, 0};
  if (sender) {
    BOOST_CHECK_NO_THROW(all_to_all_rows(x, send, receive, group));
  } else {
    BOOST_CHECK_EXCEPTION(all_to_all_rows(x, send, receive, group), CommError,
                          says("received 8 elements from rank 0 where it expected 12"));
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(point_to_point)

BOOST_AUTO_TEST_CASE(tensors_travel_round_the_ring_with_their_shape) {
  for (const int64_t limit : kChunkLimits) {
    const Group group = World(1, limit).world();
    const int p = group.size();
    if (p == 1) return;
    for (const DType dtype : kAllDTypes) {
      for (const int64_t width : {0, 1, 9}) {
        const auto from = [&](int r) {
          return filled(3 * width, dtype, [&](int64_t i) { return i + 32 * r; })
              .view({3, width})
              .transpose(0, 1);
        };
        const int left = (group.rank() + p - 1) % p;
        const int right = (group.rank() + 1) % p;
        Tensor y;
        // Even ranks send first: a send may wait for its receiver.
        if (group.rank() % 2 == 0) {
          send(from(group.rank()), right, group);
          y = recv(left, group);
        } else {
          y = recv(left, group);
          send(from(group.rank()), right, group);
        }
        BOOST_TEST((y.shape() == Shape{width, 3}));
        BOOST_TEST(y.dtype() == dtype);
        BOOST_TEST((values_of(y) == values_of(from(left))));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_tensor_that_differs_is_refused_and_the_next_one_arrives) {
  const Group group = World(1).world();
  if (group.size() == 1) {
    BOOST_CHECK_EXCEPTION(send(Tensor::zeros({1}), 0, group), CommError,
                          says("send: rank 0 is this rank itself"));
    return;
  }
  if (group.rank() == 0) {
    send(Tensor::zeros({3, 2}), 1, group);
    send(Tensor::zeros({6}, {DType::i64, {}}), 1, group);
    send(Tensor::full({6}, 5), 1, group);
  } else if (group.rank() == 1) {
    const Tensor x = Tensor::zeros({6});
    BOOST_CHECK_EXCEPTION(recv_(x, 0, group), ShapeError,
                          says("sent [3, 2] where [6] is expected"));
    BOOST_CHECK_EXCEPTION(recv_(x, 0, group), DTypeError, says("sent i64 where f32 is expected"));
    recv_(x, 0, group);
    BOOST_TEST((x.to_vector<float>() == std::vector<float>(6, 5.0F)));
  }
  barrier(group);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::dist
