#include "moe/token_dispatch.h"

#include <numeric>

#include "autograd/routing.h"
#include "dist/collectives.h"

namespace smelt {
namespace {

std::vector<int64_t> offsets_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> offsets(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), offsets.begin() + 1);
  return offsets;
}

}  // namespace

Variable exchange_rows(const Variable& rows, const std::vector<int64_t>& send_rows,
                       const std::vector<int64_t>& recv_rows, const dist::Group& group) {
  return record(
      "exchange_rows", dist::all_to_all_rows(rows.data(), send_rows, recv_rows, group), {rows},
      [send_rows, recv_rows, group](const std::vector<Tensor>& g) {
        return std::vector<Tensor>{dist::all_to_all_rows(g[0], recv_rows, send_rows, group)};
      });
}

TokenDispatch::TokenDispatch(const Tensor& indices, int64_t num_experts, const dist::Group& group)
    : group_(group) {
  SlotOrder order = sort_slots(indices, num_experts);
  row_of_slot_ = order.row_of_slot;
  token_of_row_ = order.token_of_row;
  tokens_per_expert_ = std::move(order.tokens_per_expert);
  const int64_t ranks = group.size();
  if (ranks == 1) {
    offsets_ = offsets_of(tokens_per_expert_);
    return;
  }
  SMELT_CHECK(
      ConfigError, num_experts % ranks == 0,
      "TokenDispatch: " << num_experts << " experts do not divide over " << ranks << " ranks");
  const int64_t local = num_experts / ranks;
  const std::vector<int64_t> arriving =
      dist::all_to_all_counts(tokens_per_expert_, group);  // [ranks, local]
  std::vector<int64_t> local_counts(size_t(local), 0);
  for (int64_t r = 0; r < ranks; ++r) {
    const auto sum_of = [&](const std::vector<int64_t>& counts) {
      return std::accumulate(counts.begin() + r * local, counts.begin() + (r + 1) * local,
                             int64_t{0});
    };
    send_rows_.push_back(sum_of(tokens_per_expert_));
    recv_rows_.push_back(sum_of(arriving));
    for (int64_t e = 0; e < local; ++e) local_counts[size_t(e)] += arriving[size_t(r * local + e)];
  }
  offsets_ = offsets_of(local_counts);

  const int64_t received = offsets_.back();
  SMELT_CHECK(ShapeError, received <= INT32_MAX,
              "TokenDispatch: " << received << " rows on one rank pass 2^31 - 1");
  std::vector<int32_t> arrival_of_row(static_cast<size_t>(received)),
      row_of_arrival(static_cast<size_t>(received));
  std::vector<int64_t> next = offsets_;
  int64_t arrival = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    for (int64_t e = 0; e < local; ++e) {
      for (int64_t i = 0; i < arriving[size_t(r * local + e)]; ++i, ++arrival) {
        const int64_t row = next[size_t(e)]++;
        arrival_of_row[size_t(row)] = int32_t(arrival);
        row_of_arrival[size_t(arrival)] = int32_t(row);
      }
    }
  }
  arrival_of_row_ = Tensor::from(arrival_of_row);
  row_of_arrival_ = Tensor::from(row_of_arrival);
}

Variable TokenDispatch::dispatch(const Variable& x) const {
  const Variable rows = permute_rows(x, token_of_row_, row_of_slot_);
  if (group_.size() == 1) return rows;
  const Variable received = exchange_rows(rows, send_rows_, recv_rows_, group_);
  return permute_rows(received, arrival_of_row_, row_of_arrival_.view({-1, 1}));
}

Variable TokenDispatch::combine(const Variable& expert_rows, const Variable& weights) const {
  Variable rows = expert_rows;
  if (group_.size() > 1) {
    rows = permute_rows(rows, row_of_arrival_, arrival_of_row_.view({-1, 1}));
    rows = exchange_rows(rows, recv_rows_, send_rows_, group_);
  }
  return combine_rows(rows, weights, token_of_row_, row_of_slot_);
}

}  // namespace smelt
