// Keys and values of earlier positions, one slot per (layer, visit) that stores them
// (ExecutionStep::kv_slot). Rows of the batch may have different lengths.
#pragma once

#include <vector>

#include "nn/execution_plan.h"
#include "tensor/tensor.h"

namespace smelt {

class KvCache {
 public:
  /// Room for `capacity` positions of `batch` sequences in every slot of the plan.
  KvCache(const ExecutionPlan& plan, int64_t batch, int64_t capacity, int64_t num_kv_heads,
          int64_t head_dim, TensorOptions options);

  int64_t batch() const { return int64_t(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  int64_t slots() const { return int64_t(keys_.size()); }
  /// Positions stored so far, per sequence.
  const std::vector<int64_t>& lengths() const { return lengths_; }
  /// Bytes of keys and values per position of one sequence: 2 * slots * kv_heads * head_dim * size.
  int64_t bytes_per_token() const;

  /// Stores k, v [B, n, K, D] of n new positions behind each sequence's length, without moving it.
  /// @throws ShapeError for a wrong slot or shape, or when a sequence would pass the capacity.
  void write(int64_t slot, const Tensor& k, const Tensor& v) const;
  /// All keys and values of a slot, [B, capacity, K, D]; positions never written hold garbage.
  const Tensor& keys(int64_t slot) const { return keys_[size_t(slot)]; }
  const Tensor& values(int64_t slot) const { return values_[size_t(slot)]; }
  /// Adds counts[b] positions to sequence b, after all slots have been written.
  void advance(const std::vector<int64_t>& counts);

 private:
  int64_t capacity_;
  std::vector<int64_t> lengths_;
  std::vector<Tensor> keys_, values_;
};

}  // namespace smelt
