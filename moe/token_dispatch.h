// Token dispatch and combine: routed rows travel to the ranks that hold their experts and back.
//
//   x [T, H] --permute--> rows by expert [N, H] --all-to-all--> received [R, H] --regroup--> rows
//   by local expert [R, H] --experts--> ... and the same way back, weighted and summed per token.
//
// N = T * top_k. Nothing is dropped and no capacity exists: buffers follow the counts. On one rank
// there is no exchange and no regrouping, and autograd/experts.h does both ways with less memory.
// Every step is differentiable.
#pragma once

#include <vector>

#include "autograd/experts.h"
#include "autograd/variable.h"
#include "dist/group.h"

namespace smelt {

/// Differentiable all-to-all of rows [N, H]: the backward exchanges with send and receive counts
/// swapped. Collective over `group`, forward and backward, also for ranks with no rows.
Variable exchange_rows(const Variable& rows, const std::vector<int64_t>& send_rows,
                       const std::vector<int64_t>& recv_rows, const dist::Group& group);

class TokenDispatch {
 public:
  /// Plans the exchange for indices [T, K] i32 over num_experts experts, num_experts / group.size()
  /// consecutive ones on each rank. Collective; one device-to-host transfer (the counts).
  TokenDispatch(const Tensor& indices, int64_t num_experts, const dist::Group& group);

  /// Rows of x [T, H] that this rank's experts work on, sorted by expert: [R, H].
  Variable dispatch(const Variable& x) const;
  /// Expert outputs [R, H] back to their tokens: y[t] = sum_k weights[t, k] output(t, k). weights
  /// [T, K].
  Variable combine(const Variable& expert_rows, const Variable& weights) const;

  /// Where the rows of tokens lie when all experts are on this rank.
  Routes routes() const { return {token_of_row_, row_of_slot_, offsets_}; }
  /// Row ranges of the local experts in dispatch()'s result, [num_local_experts + 1].
  const std::vector<int64_t>& offsets() const { return offsets_; }
  /// Rows that this rank's tokens send to each expert, [num_experts].
  const std::vector<int64_t>& tokens_per_expert() const { return tokens_per_expert_; }

 private:
  dist::Group group_;
  Tensor row_of_slot_;   // [T, K]
  Tensor token_of_row_;  // [N]
  std::vector<int64_t> tokens_per_expert_;
  std::vector<int64_t> offsets_;
  // With more than one rank: rows per peer, and between arrival order (by rank, then expert) and
  // expert order.
  std::vector<int64_t> send_rows_, recv_rows_;
  Tensor arrival_of_row_, row_of_arrival_;  // [R]
};

}  // namespace smelt
