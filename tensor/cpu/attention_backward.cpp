// Attention backward: for each pair of a query block and a key block five products, everything
// else in scratch of block size. dk and dv are summed by one owner per (sequence, key-value head,
// part); parts are added in a fixed order, so there are no atomics.
#include <cmath>

#include "tensor/cpu/attention_block.h"
#include "tensor/cpu/exp2.h"
#include "tensor/cpu/simd.h"
#include "tensor/kernels/attention.h"

namespace smelt::kernels::cpu {
namespace {

template <typename T, typename A = acc_t<T>>
struct BackwardArrays {
  BackwardArrays(Arena& arena, const AttentionProblem<T>& p)
      : q(arena.take<T>(p.max_rows() * p.size)),
        q_clean(arena.take<T>(p.max_rows() * p.size)),
        q_bad(arena.take<int32_t>(p.max_rows())),
        dout(arena.take<T>(p.max_rows() * p.size)),
        dout_clean(arena.take<T>(p.max_rows() * p.size)),
        dout_bad(arena.take<int32_t>(p.max_rows())),
        dq(arena.take<A>(p.max_rows() * p.size)),
        scores(arena.take<A>(p.max_rows() * p.max_keys())),
        dscores(arena.take<A>(p.max_rows() * p.max_keys())),
        probs(narrow_or(take_narrow<T>(arena, p.max_rows() * p.max_keys()), scores)),
        dlogits(narrow_or(take_narrow<T>(arena, p.max_rows() * p.max_keys()), dscores)),
        lse(arena.take<A>(p.max_rows())),
        delta(arena.take<A>(p.max_rows())),
        k_clean(arena.take<T>(p.max_keys() * p.size)),
        k_bad(arena.take<int32_t>(p.max_keys())),
        window{arena.take<int32_t>(p.max_rows()), arena.take<int32_t>(p.max_rows())} {}
  T *q, *q_clean;
  int32_t* q_bad;
  T *dout, *dout_clean;
  int32_t* dout_bad;
  A *dq, *scores, *dscores;
  T *probs, *dlogits;  // the same memory as scores and dscores unless T is narrower than A
  A *lse, *delta;
  T* k_clean;
  int32_t* k_bad;
  Window window;
};

/// What the forward pass left, and where the query gradient goes.
template <typename T>
struct Saved {
  const T *dout, *out;
  const acc_t<T>* lse;
  T* dq;
};

/// From scores and dscores = dout v^T of one block: probs = p and dlogits = p * (dscores - delta),
/// both 0 outside the window.
template <typename T, typename A = acc_t<T>>
void probabilities(const BackwardArrays<T>& s, int64_t rows, int64_t count) {
  for (int64_t i = 0; i < rows; ++i) {
    const A* const scores = s.scores + i * count;
    const A* const dscores = s.dscores + i * count;
    T* const probs = s.probs + i * count;
    T* const dlogits = s.dlogits + i * count;
    const int64_t lo = s.window.lo[i], hi = s.window.hi[i];
    const A lse = s.lse[i], delta = s.delta[i];
    std::fill(probs, probs + lo, T(0.0f));
    std::fill(dlogits, dlogits + lo, T(0.0f));
#pragma omp simd
    for (int64_t j = lo; j < hi; ++j) {
      const A p = simd_exp2(scores[j] - lse);
      probs[j] = round_to<T>(p);
      dlogits[j] = round_to<T>(p * (dscores[j] - delta));
    }
    std::fill(probs + hi, probs + count, T(0.0f));
    std::fill(dlogits + hi, dlogits + count, T(0.0f));
  }
}

/// dq of one query block, and its share of dk and dv [keys, size], which are added to.
template <typename T, typename A = acc_t<T>>
void backward_block(const AttentionProblem<T>& p, const Saved<T>& saved, const QueryBlock& block,
                    A scale, BackwardArrays<T>& s, A* dk, A* dv) {
  const int64_t size = p.size, rows = block.rows, width = p.group * size;
  const int64_t offset = p.out_offset(block.b, block.first, block.g);
  pack_rows(p.q_row(block.b, block.first, block.g), p.q_position, block, width, s.q);
  pack_rows(saved.dout + offset, p.heads * size, block, width, s.dout);
  for (int64_t i = 0; i < block.last - block.first; ++i) {
    const T* const out = saved.out + offset + i * p.heads * size;
    for (int64_t r = 0; r < p.group; ++r) {
      const int64_t row = i * p.group + r;
      A delta = 0;
#pragma omp simd reduction(+ : delta)
      for (int64_t d = 0; d < size; ++d) {
        delta += A(s.dout[row * size + d]) * A(out[r * size + d]);
      }
      s.delta[row] = delta;
      s.lse[row] = saved.lse[p.lse_offset(block.b, block.first + i, block.g, r)] * A(kLog2e);
    }
  }
  const Operand<T> q = inspect(s.q, size, rows, size, s.q_clean, s.q_bad);
  const Operand<T> dout = inspect(s.dout, size, rows, size, s.dout_clean, s.dout_bad);
  std::fill_n(s.dq, rows * size, A(0));

  for (int64_t key = block.key_begin; key < block.key_end; key += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, block.key_end - key);
    s.window.set(block, p.group, key, count);
    if (!s.window.any) continue;
    Operand<T> k = unmasked(p.k_row(block.b, key, block.g), p.k_position);
    if (!s.window.full) k = inspect(k.data, k.stride, count, size, s.k_clean, s.k_bad);
    gemm(false, true, rows, count, size, scale * A(kLog2e), s.q, size, k.data, k.stride, A(0),
         s.scores, count);
    gemm(false, true, rows, count, size, A(1), s.dout, size, p.v_row(block.b, key, block.g),
         p.v_position, A(0), s.dscores, count);
    probabilities(s, rows, count);
    add_over_rows(s.probs, rows, count, dout, s.window, A(1), dv + key * size, size);
    add_over_keys(s.dlogits, rows, count, k, s.window, scale, s.dq, size);
    add_over_rows(s.dlogits, rows, count, q, s.window, scale, dk + key * size, size);
  }

  for (int64_t i = 0; i < block.last - block.first; ++i) {
    T* const dq = saved.dq + offset + i * p.heads * size;
#pragma omp simd
    for (int64_t d = 0; d < width; ++d) dq[d] = round_to<T>(s.dq[i * width + d]);
  }
}

/// Writes key-value head g of sequence b of a contiguous [batch, keys, kv_heads, size] tensor: the
/// sum over parts, `part_stride` elements apart, each [keys, size].
template <typename T, typename A = acc_t<T>>
void store_sum(const AttentionProblem<T>& p, int64_t b, int64_t g, const A* parts, int64_t count,
               int64_t part_stride, T* target) {
  for (int64_t j = 0; j < p.keys; ++j) {
    T* const row = target + ((b * p.keys + j) * p.kv_heads + g) * p.size;
    const A* const source = parts + j * p.size;
#pragma omp simd
    for (int64_t d = 0; d < p.size; ++d) {
      A sum = source[d];
      for (int64_t n = 1; n < count; ++n) sum += source[n * part_stride + d];
      row[d] = round_to<T>(sum);
    }
  }
}

}  // namespace

void attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& begin, const Tensor& end, double scale,
                        const Attention& forward, const AttentionGrad& grad) {
  dispatch_float(q.dtype(), "attention_backward", [&](auto tag) {
    using T = decltype(tag);
    using A = acc_t<T>;
    const AttentionProblem<T> p(q, k, v, begin, end);
    const Saved<T> saved{dout.data<T>(), forward.out.data<T>(), forward.lse.data<A>(),
                         grad.dq.data<T>()};
    T* const dk = grad.dk.data<T>();
    T* const dv = grad.dv.data<T>();

    // A (sequence, key-value head) pair is one task. With fewer pairs than threads the query blocks
    // of a pair are dealt out to several tasks, each with its own sums of dk and dv; that bounds
    // the memory by one pair of sums per thread (and per pair).
    const int64_t pairs = p.batch * p.kv_heads;
    const int64_t threads = omp_get_max_threads();
    const int64_t parts = std::clamp<int64_t>((threads + pairs - 1) / std::max<int64_t>(pairs, 1),
                                              1, std::max<int64_t>(p.blocks, 1));
    const int64_t sum_size = p.keys * p.size;
    const int64_t owners = parts == 1 ? threads : pairs * parts;
    const Tensor sums = Tensor::empty({owners, 2, sum_size}, {accumulation_dtype(q.dtype()), {}});
    const Scratch<BackwardArrays<T>> scratch(p);
#pragma omp parallel if (pairs * parts > 1 && p.work() > kParallelGrain)
    {
      BackwardArrays<T> arrays = scratch.mine(p);
#pragma omp for schedule(dynamic)
      for (int64_t task = 0; task < pairs * parts; ++task) {
        const int64_t b = task / parts / p.kv_heads, g = task / parts % p.kv_heads;
        A* const sum_k = sums.data<A>() + (parts == 1 ? omp_get_thread_num() : task) * 2 * sum_size;
        A* const sum_v = sum_k + sum_size;
        std::fill_n(sum_k, 2 * sum_size, A(0));
        for (int64_t block = task % parts; block < p.blocks; block += parts) {
          backward_block<T>(p, saved, QueryBlock(p, b, g, block), A(scale), arrays, sum_k, sum_v);
        }
        if (parts == 1) {
          store_sum(p, b, g, sum_k, 1, 0, dk);
          store_sum(p, b, g, sum_v, 1, 0, dv);
        }
      }
      if (parts > 1) {
#pragma omp for
        for (int64_t pair = 0; pair < pairs; ++pair) {
          const A* const sum_k = sums.data<A>() + pair * parts * 2 * sum_size;
          store_sum(p, pair / p.kv_heads, pair % p.kv_heads, sum_k, parts, 2 * sum_size, dk);
          store_sum(p, pair / p.kv_heads, pair % p.kv_heads, sum_k + sum_size, parts, 2 * sum_size,
                    dv);
        }
      }
    }
  });
}

}  // namespace smelt::kernels::cpu
