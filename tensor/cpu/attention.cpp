// Attention forward: online softmax (Milakov and Gimelshein, arXiv:1805.02867) over key blocks, as
// in Dao et al., arXiv:2205.14135. Scores are kept in units of log 2.
#include "tensor/kernels/attention.h"

#include <cmath>
#include <limits>

#include "tensor/cpu/attention_block.h"
#include "tensor/cpu/exp2.h"
#include "tensor/cpu/simd.h"

namespace smelt::kernels::cpu {
namespace {

constexpr int64_t kDecodeKeys = 128;  // keys per step of the single-query loop

/// Running softmax of one row: maximum so far, sum of 2^(score - maximum).
template <typename A>
struct RowState {
  A max, sum;
};

/// Writes the probabilities of scores relative to the new maximum (probs may be scores) and returns
/// the factor for what was accumulated before.
template <typename T, typename A = acc_t<T>>
A absorb(RowState<A>& state, const A* scores, int64_t count, T* probs) {
  constexpr A kInfinity = std::numeric_limits<A>::infinity();
  A max = state.max;
#pragma omp simd reduction(max : max)
  for (int64_t j = 0; j < count; ++j) max = scores[j] > max ? scores[j] : max;
  const A shift = max == -kInfinity ? A(0) : max;  // all scores -inf: no inf - inf
  A sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) {
    const A p = simd_exp2(scores[j] - shift);
    probs[j] = round_to<T>(p);
    sum += p;
  }
  const A factor = simd_exp2(state.max - shift);
  state.max = max;
  state.sum = state.sum * factor + sum;
  return factor;
}

template <typename A>
A log_sum_exp(const RowState<A>& state) {
  return (state.max + std::log2(state.sum)) * A(kLn2);
}

template <typename T, typename A>
void store(const A* source, int64_t size, A factor, T* target) {
#pragma omp simd
  for (int64_t d = 0; d < size; ++d) target[d] = round_to<T>(source[d] * factor);
}

template <typename T, typename A = acc_t<T>>
struct ForwardArrays {
  ForwardArrays(Arena& arena, const AttentionProblem<T>& p)
      : q(arena.take<T>(p.max_rows() * p.size)),
        out(arena.take<A>(p.max_rows() * p.size)),
        scores(arena.take<A>(p.max_rows() * p.max_keys())),
        probs(narrow_or(take_narrow<T>(arena, p.max_rows() * p.max_keys()), scores)),
        state(arena.take<RowState<A>>(p.max_rows())),
        clean(arena.take<T>(p.max_keys() * p.size)),
        bad(arena.take<int32_t>(p.max_keys())),
        window{arena.take<int32_t>(p.max_rows()), arena.take<int32_t>(p.max_rows())} {}
  T* q;
  A *out, *scores;
  T* probs;
  RowState<A>* state;
  T* clean;
  int32_t* bad;
  Window window;
};

template <typename T, typename A = acc_t<T>>
void forward_block(const AttentionProblem<T>& p, const QueryBlock& block, A scale,
                   ForwardArrays<T>& s, T* out, A* lse) {
  const int64_t size = p.size, rows = block.rows;
  pack_rows(p.q_row(block.b, block.first, block.g), p.q_position, block, p.group * size, s.q);
  std::fill_n(s.out, rows * size, A(0));
  std::fill_n(s.state, rows, RowState<A>{-std::numeric_limits<A>::infinity(), 0});
  for (int64_t key = block.key_begin; key < block.key_end; key += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, block.key_end - key);
    s.window.set(block, p.group, key, count);
    if (!s.window.any) continue;
    Operand<T> v = unmasked(p.v_row(block.b, key, block.g), p.v_position);
    if (!s.window.full) v = inspect(v.data, v.stride, count, size, s.clean, s.bad);
    gemm(false, true, rows, count, size, scale * A(kLog2e), s.q, size,
         p.k_row(block.b, key, block.g), p.k_position, A(0), s.scores, count);
    for (int64_t i = 0; i < rows; ++i) {
      T* const probs = s.probs + i * count;
      const int64_t lo = s.window.lo[i], hi = s.window.hi[i];
      std::fill(probs, probs + lo, T(0.0f));
      std::fill(probs + hi, probs + count, T(0.0f));
      if (lo == hi) continue;
      const A factor = absorb(s.state[i], s.scores + i * count + lo, hi - lo, probs + lo);
      if (factor == A(1)) continue;
      A* const o = s.out + i * size;
#pragma omp simd
      for (int64_t d = 0; d < size; ++d) o[d] *= factor;
    }
    add_over_keys(s.probs, rows, count, v, s.window, A(1), s.out, size);
  }
  for (int64_t i = block.first; i < block.last; ++i) {
    const bool none = block.begin[i - block.first] == block.end[i - block.first];
    for (int64_t r = 0; r < p.group; ++r) {
      const int64_t row = (i - block.first) * p.group + r;
      const A factor = none ? A(0) : A(1) / s.state[row].sum;
      store(s.out + row * size, size, factor, out + p.out_offset(block.b, i, block.g) + r * size);
      lse[p.lse_offset(block.b, i, block.g, r)] = log_sum_exp(s.state[row]);
    }
  }
}

/// One query per sequence (decoding): matrix products would only pack keys that are used once, so
/// this streams K and V through the registers. Bound by memory bandwidth.
template <typename A>
struct DecodeArrays {
  template <typename T>
  DecodeArrays(Arena& arena, const AttentionProblem<T>& p)
      : q(arena.take<A>(p.group * p.size)),
        out(arena.take<A>(p.group * p.size)),
        scores(arena.take<A>(p.group * kDecodeKeys)),
        state(arena.take<RowState<A>>(p.group)) {}
  A *q, *out, *scores;
  RowState<A>* state;
};

template <typename T, typename A = acc_t<T>>
void decode(const AttentionProblem<T>& p, const QueryBlock& block, A scale, DecodeArrays<A>& s,
            T* out, A* lse) {
  const int64_t size = p.size;
  const T* const q_row = p.q_row(block.b, 0, block.g);
  for (int64_t d = 0; d < p.group * size; ++d) s.q[d] = A(q_row[d]) * scale * A(kLog2e);
  std::fill_n(s.out, p.group * size, A(0));
  std::fill_n(s.state, p.group, RowState<A>{-std::numeric_limits<A>::infinity(), 0});
  for (int64_t key = block.key_begin; key < block.key_end; key += kDecodeKeys) {
    const int64_t count = std::min(kDecodeKeys, block.key_end - key);
    for (int64_t j = 0; j < count; ++j) {
      const T* const k = p.k_row(block.b, key + j, block.g);
      for (int64_t r = 0; r < p.group; ++r) {
        const A* const q = s.q + r * size;
        A dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < size; ++d) dot += q[d] * A(k[d]);
        s.scores[r * kDecodeKeys + j] = dot;
      }
    }
    for (int64_t r = 0; r < p.group; ++r) {
      const A factor =
          absorb<A>(s.state[r], s.scores + r * kDecodeKeys, count, s.scores + r * kDecodeKeys);
      for (int64_t d = 0; d < size; ++d) s.out[r * size + d] *= factor;
    }
    for (int64_t j = 0; j < count; ++j) {
      const T* const v = p.v_row(block.b, key + j, block.g);
      for (int64_t r = 0; r < p.group; ++r) {
        const A w = s.scores[r * kDecodeKeys + j];
        A* const o = s.out + r * size;
#pragma omp simd
        for (int64_t d = 0; d < size; ++d) o[d] += w * A(v[d]);
      }
    }
  }
  const bool none = block.key_begin >= block.key_end;
  for (int64_t r = 0; r < p.group; ++r) {
    const A factor = none ? A(0) : A(1) / s.state[r].sum;
    store(s.out + r * size, size, factor, out + p.out_offset(block.b, 0, block.g) + r * size);
    lse[p.lse_offset(block.b, 0, block.g, r)] = log_sum_exp(s.state[r]);
  }
}

/// Runs work(query block, thread's arrays) over all query blocks. Every block writes only its own
/// rows and its result does not depend on the others, nor on the thread it runs on.
template <typename Arrays, typename T, typename Work>
void over_blocks(const AttentionProblem<T>& p, const Work& work) {
  const Scratch<Arrays> scratch(p);
  const int64_t tasks = p.batch * p.kv_heads * p.blocks;
#pragma omp parallel if (tasks > 1 && p.work() > kParallelGrain)
  {
    Arrays arrays = scratch.mine(p);
#pragma omp for schedule(dynamic)
    for (int64_t task = 0; task < tasks; ++task) {
      // Late blocks first: under a causal range they are the longest.
      const int64_t block = p.blocks - 1 - task / (p.batch * p.kv_heads);
      const int64_t pair = task % (p.batch * p.kv_heads);
      work(QueryBlock(p, pair / p.kv_heads, pair % p.kv_heads, block), arrays);
    }
  }
}

}  // namespace

void attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& begin,
                       const Tensor& end, double scale, const Attention& result) {
  dispatch_float(q.dtype(), "attention", [&](auto tag) {
    using T = decltype(tag);
    using A = acc_t<T>;
    const AttentionProblem<T> p(q, k, v, begin, end);
    T* const out = result.out.data<T>();
    A* const lse = result.lse.data<A>();
    if (p.queries == 1) {
      over_blocks<DecodeArrays<A>>(p, [&](const QueryBlock& block, DecodeArrays<A>& arrays) {
        decode<T>(p, block, A(scale), arrays, out, lse);
      });
    } else {
      over_blocks<ForwardArrays<T>>(p, [&](const QueryBlock& block, ForwardArrays<T>& arrays) {
        forward_block<T>(p, block, A(scale), arrays, out, lse);
      });
    }
  });
}

}  // namespace smelt::kernels::cpu
