#include "tensor/attention.h"

#include "tensor/flop_counter.h"
#include "tensor/kernels/attention.h"

namespace smelt {
namespace {

/// Ranges are read on the host, so only there can they be checked before use.
void check_ranges(const char* op, const Tensor& begin, const Tensor& end, int64_t keys) {
  if (!begin.device().is_cpu()) return;
  const int32_t* const b = begin.data<int32_t>();
  const int32_t* const e = end.data<int32_t>();
  const int64_t queries = begin.dim(1);
  for (int64_t i = 0; i < begin.numel(); ++i) {
    SMELT_CHECK(ShapeError, 0 <= b[i] && b[i] <= e[i] && e[i] <= keys,
                op << ": range of query " << i % queries << " in sequence " << i / queries
                   << " is [" << b[i] << ", " << e[i] << "), must lie within the " << keys
                   << " keys");
  }
}

/// x itself when its last two dimensions are contiguous and positions do not overlap (an expanded
/// dimension does), else a contiguous copy.
Tensor with_dense_heads(const Tensor& x) {
  const Shape& strides = x.strides();
  const bool rows = x.dim(3) <= 1 || strides[3] == 1;
  const bool heads = x.dim(2) <= 1 || strides[2] == x.dim(3);
  const bool positions = x.dim(1) <= 1 || strides[1] >= x.dim(2) * x.dim(3);
  return x.numel() == 0 || (rows && heads && positions) ? x : x.contiguous();
}

struct Arguments {
  Tensor q, k, v, begin, end;
};

Arguments checked(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                  const Tensor& begin, const Tensor& end) {
  check_rank(op, "q", q, 4);
  check_rank(op, "k", k, 4);
  check_rank(op, "v", v, 4);
  check_same_options(op, q, k);
  check_same_options(op, q, v);
  SMELT_CHECK(DTypeError, is_floating(q.dtype()),
              op << ": dtype must be f32, bf16 or f64, not " << name_of(q.dtype()));
  check_same_shape(op, k, v);
  SMELT_CHECK(ShapeError, k.dim(0) == q.dim(0) && k.dim(3) == q.dim(3),
              op << ": q " << to_string(q.shape()) << " and k " << to_string(k.shape())
                 << " must agree in batch and head size");
  SMELT_CHECK(ShapeError, k.dim(2) > 0 && q.dim(2) % k.dim(2) == 0,
              op << ": " << q.dim(2) << " query heads are not a multiple of " << k.dim(2)
                 << " key-value heads");
  for (const auto& [name, range] : {std::pair{"begin", &begin}, {"end", &end}}) {
    check_shape(op, name, *range, {q.dim(0), q.dim(1)});
    check_dtype(op, name, *range, DType::i32);
    SMELT_CHECK(DeviceError, range->device() == q.device(),
                op << ": " << name << " is on " << range->device() << ", q on " << q.device());
  }
  Arguments a{with_dense_heads(q), with_dense_heads(k), with_dense_heads(v), begin.contiguous(),
              end.contiguous()};
  check_ranges(op, a.begin, a.end, k.dim(1));
  return a;
}

/// (query, key) pairs that the ranges allow, times query heads and head size.
double pair_values(const Arguments& a) {
  double pairs = 0;
  for (const int32_t end : a.end.to_vector<int32_t>()) pairs += end;
  for (const int32_t begin : a.begin.to_vector<int32_t>()) pairs -= begin;
  return pairs * double(a.q.dim(2) * a.q.dim(3));
}

}  // namespace

Attention attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& begin,
                    const Tensor& end, double scale) {
  const Arguments a = checked("attention", q, k, v, begin, end);
  const Attention result{
      Tensor::empty(q.shape(), q.options()),
      Tensor::empty({q.dim(0), q.dim(2), q.dim(1)}, {accumulation_dtype(q.dtype()), q.device()})};
  if (FlopCounter::counting()) FlopCounter::add_attention(4 * pair_values(a));
  SMELT_DISPATCH(q.device(), attention_forward, a.q, a.k, a.v, a.begin, a.end, scale, result);
  return result;
}

AttentionGrad attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& begin, const Tensor& end,
                                 double scale, const Attention& forward) {
  constexpr const char* op = "attention_backward";
  const Arguments a = checked(op, q, k, v, begin, end);
  check_shape(op, "dout", dout, q.shape());
  check_same_options(op, dout, q);
  check_shape(op, "forward.out", forward.out, q.shape());
  check_same_options(op, forward.out, q);
  check_shape(op, "forward.lse", forward.lse, {q.dim(0), q.dim(2), q.dim(1)});
  check_dtype(op, "forward.lse", forward.lse, accumulation_dtype(q.dtype()));
  const AttentionGrad grad{Tensor::empty(q.shape(), q.options()),
                           Tensor::empty(k.shape(), k.options()),
                           Tensor::empty(v.shape(), v.options())};
  const Attention saved{forward.out.contiguous(), forward.lse.contiguous()};
  const Tensor upstream = dout.contiguous();
  if (FlopCounter::counting()) FlopCounter::add_attention(8 * pair_values(a));
  SMELT_DISPATCH(q.device(), attention_backward, upstream, a.q, a.k, a.v, a.begin, a.end, scale,
                 saved, grad);
  return grad;
}

}  // namespace smelt
