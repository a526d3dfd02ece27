// Private to tensor/cpu: what attention's forward and backward share. A query block is a run of
// query positions of one sequence together with all query heads of one key-value head, so that
// grouped heads become rows of one matrix product and K and V are read once per group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <omp.h>

#include "tensor/cpu/blas.h"
#include "tensor/tensor.h"

namespace smelt::kernels::cpu {

// Rows of a query block, the most positions they come from (a long run of positions wastes work
// above the diagonal of a causal range), and keys of a key block. Scores of a block (two of them in
// backward) must stay in the second-level cache while products are large enough for their full
// rate; measured on cores with 512 KiB each.
constexpr int64_t kQueryRows = 128;
constexpr int64_t kQueryPositions = 64;
constexpr int64_t kKeyBlock = 256;

/// Cuts one block of memory into aligned arrays; with no memory it only adds up the bytes.
class Arena {
 public:
  explicit Arena(void* base = nullptr) : base_(static_cast<std::byte*>(base)) {}
  template <typename T>
  T* take(int64_t count) {
    std::byte* const at = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += (count * int64_t(sizeof(T)) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

/// Arrays of every thread of the coming parallel region, from smelt's allocator in one request.
template <typename Layout>
class Scratch {
 public:
  template <typename Sizes>
  explicit Scratch(const Sizes& sizes) {
    Arena counting;
    Layout(counting, sizes);
    bytes_ = counting.bytes();
    memory_ = Tensor::empty({omp_get_max_threads(), bytes_ / 4}, {DType::i32, {}});
  }
  /// The calling thread's arrays.
  template <typename Sizes>
  Layout mine(const Sizes& sizes) const {
    Arena arena(static_cast<std::byte*>(memory_.raw()) + omp_get_thread_num() * bytes_);
    return Layout(arena, sizes);
  }

 private:
  int64_t bytes_ = 0;
  Tensor memory_;
};

/// Sizes, strides (in elements) and inputs of one call.
template <typename T>
struct AttentionProblem {
  AttentionProblem(const Tensor& q_, const Tensor& k_, const Tensor& v_, const Tensor& begin_,
                   const Tensor& end_)
      : batch(q_.dim(0)),
        queries(q_.dim(1)),
        heads(q_.dim(2)),
        size(q_.dim(3)),
        keys(k_.dim(1)),
        kv_heads(k_.dim(2)),
        group(heads / kv_heads),
        positions(
            std::clamp<int64_t>(kQueryRows / std::max<int64_t>(1, group), 1, kQueryPositions)),
        blocks((queries + positions - 1) / positions),
        q(q_.data<T>()),
        k(k_.data<T>()),
        v(v_.data<T>()),
        begin(begin_.data<int32_t>()),
        end(end_.data<int32_t>()),
        q_batch(q_.strides()[0]),
        q_position(q_.strides()[1]),
        k_batch(k_.strides()[0]),
        k_position(k_.strides()[1]),
        v_batch(v_.strides()[0]),
        v_position(v_.strides()[1]) {}

  int64_t batch, queries, heads, size, keys, kv_heads;
  int64_t group;      // query heads per key-value head
  int64_t positions;  // query positions per query block
  int64_t blocks;     // query blocks per sequence
  const T *q, *k, *v;
  const int32_t *begin, *end;
  int64_t q_batch, q_position, k_batch, k_position, v_batch, v_position;

  /// Multiplications of one product without masks, to tell whether threads are worth waking.
  int64_t work() const { return batch * heads * queries * keys * size; }
  int64_t max_rows() const { return std::min(positions, queries) * group; }
  int64_t max_keys() const { return std::min(kKeyBlock, keys); }
  const T* q_row(int64_t b, int64_t i, int64_t g) const {
    return q + b * q_batch + i * q_position + g * group * size;
  }
  const T* k_row(int64_t b, int64_t j, int64_t g) const {
    return k + b * k_batch + j * k_position + g * size;
  }
  const T* v_row(int64_t b, int64_t j, int64_t g) const {
    return v + b * v_batch + j * v_position + g * size;
  }
  /// Offset of the group's rows at position i in a contiguous tensor shaped like q.
  int64_t out_offset(int64_t b, int64_t i, int64_t g) const {
    return ((b * queries + i) * heads + g * group) * size;
  }
  /// Offset of query head r of the group at position i in lse.
  int64_t lse_offset(int64_t b, int64_t i, int64_t g, int64_t r) const {
    return (b * heads + g * group + r) * queries + i;
  }
};

/// Query positions [first, last) of sequence b for key-value head g; row i * group + r of the block
/// is query head r of position first + i. Keys that any of them sees lie in [key_begin, key_end).
struct QueryBlock {
  template <typename T>
  QueryBlock(const AttentionProblem<T>& p, int64_t b_, int64_t g_, int64_t block)
      : b(b_),
        g(g_),
        first(block * p.positions),
        last(std::min(first + p.positions, p.queries)),
        rows((last - first) * p.group),
        begin(p.begin + b * p.queries + first),
        end(p.end + b * p.queries + first),
        key_begin(p.keys) {
    for (int64_t i = 0; i < last - first; ++i) {
      if (begin[i] == end[i]) continue;
      key_begin = std::min<int64_t>(key_begin, begin[i]);
      key_end = std::max<int64_t>(key_end, end[i]);
    }
  }
  int64_t b, g, first, last, rows;
  const int32_t *begin, *end;
  int64_t key_begin, key_end = 0;
};

/// Per row of a query block, which keys of a key block it sees: columns [lo, hi).
struct Window {
  int32_t *lo, *hi;
  bool any = false, full = false;  // some row sees some key; every row sees every key

  void set(const QueryBlock& block, int64_t group, int64_t key, int64_t count) {
    any = false;
    full = true;
    for (int64_t i = 0; i < block.last - block.first; ++i) {
      const auto from = int32_t(std::clamp<int64_t>(block.begin[i] - key, 0, count));
      const auto to = int32_t(std::clamp<int64_t>(block.end[i] - key, from, count));
      any = any || from < to;
      full = full && from == 0 && to == count;
      std::fill_n(lo + i * group, group, from);
      std::fill_n(hi + i * group, group, to);
    }
  }
};

/// A matrix [rows, size] that is multiplied by masked weights. A weight of 0 does not silence a row
/// that holds NaN or infinity (0 * NaN is NaN), so such rows are zero in `clean` and listed in
/// `bad`.
template <typename T>
struct Operand {
  const T* data = nullptr;  // as given
  int64_t stride = 0;
  const T* clean = nullptr;  // the same memory as data unless there are bad rows
  int64_t clean_stride = 0;
  const int32_t* bad = nullptr;
  int64_t bad_count = 0;
};

/// x where every row counts for every weight, so that no weight needs to be kept from a bad row.
template <typename T>
Operand<T> unmasked(const T* data, int64_t stride) {
  return {data, stride, data, stride, nullptr, 0};
}

template <typename T>
Operand<T> inspect(const T* data, int64_t stride, int64_t rows, int64_t size, T* clean,
                   int32_t* bad) {
  using A = acc_t<T>;
  Operand<T> x{data, stride, data, stride, bad, 0};
  for (int64_t i = 0; i < rows; ++i) {
    A zero = 0;
#pragma omp simd reduction(+ : zero)
    for (int64_t d = 0; d < size; ++d) zero += A(data[i * stride + d]) * A(0);
    if (zero != A(0)) bad[x.bad_count++] = int32_t(i);
  }
  if (x.bad_count > 0) {
    for (int64_t i = 0; i < rows; ++i) std::copy_n(data + i * stride, size, clean + i * size);
    for (int64_t n = 0; n < x.bad_count; ++n) std::fill_n(clean + bad[n] * size, size, T(0.0f));
    x.clean = clean;
    x.clean_stride = size;
  }
  return x;
}

/// out[rows, size] += alpha * weights[rows, keys] x[keys, size]; weights are 0 outside the window.
template <typename T, typename A = acc_t<T>>
void add_over_keys(const T* weights, int64_t rows, int64_t keys, const Operand<T>& x,
                   const Window& window, A alpha, A* out, int64_t size) {
  gemm(false, false, rows, size, keys, alpha, weights, keys, x.clean, x.clean_stride, A(1), out,
       size);
  for (int64_t n = 0; n < x.bad_count; ++n) {
    const int64_t j = x.bad[n];
    for (int64_t i = 0; i < rows; ++i) {
      if (j < window.lo[i] || j >= window.hi[i]) continue;
      const A w = alpha * A(weights[i * keys + j]);
      for (int64_t d = 0; d < size; ++d) out[i * size + d] += w * A(x.data[j * x.stride + d]);
    }
  }
}

/// out[keys, size] += alpha * weights[rows, keys]^T x[rows, size]; likewise.
template <typename T, typename A = acc_t<T>>
void add_over_rows(const T* weights, int64_t rows, int64_t keys, const Operand<T>& x,
                   const Window& window, A alpha, A* out, int64_t size) {
  gemm(true, false, keys, size, rows, alpha, weights, keys, x.clean, x.clean_stride, A(1), out,
       size);
  for (int64_t n = 0; n < x.bad_count; ++n) {
    const int64_t i = x.bad[n];
    for (int64_t j = window.lo[i]; j < window.hi[i]; ++j) {
      const A w = alpha * A(weights[i * keys + j]);
      for (int64_t d = 0; d < size; ++d) out[j * size + d] += w * A(x.data[i * x.stride + d]);
    }
  }
}

/// Packs the rows of a query block: row i * group + r of target is row (i, r) of source, where the
/// rows of one position are contiguous and positions `stride` apart.
template <typename T>
void pack_rows(const T* source, int64_t stride, const QueryBlock& block, int64_t width, T* target) {
  for (int64_t i = 0; i < block.last - block.first; ++i) {
    std::copy_n(source + i * stride, width, target + i * width);
  }
}

/// Weights are multiplied in T: memory for those formed in the wider acc_t<T>, or null where T is
/// the wider type and they can stay in place.
template <typename T>
T* take_narrow(Arena& arena, int64_t count) {
  return std::is_same_v<T, acc_t<T>> ? nullptr : arena.take<T>(count);
}
template <typename T>
T* narrow_or(T* narrow, acc_t<T>* wide) {
  if constexpr (std::is_same_v<T, acc_t<T>>) {
    return wide;
  } else {
    return narrow;
  }
}

}  // namespace smelt::kernels::cpu
