// Attention against plain loops in double, over every kind of range that models produce.
#include "tensor/attention.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <omp.h>

#include "tensor/allocator.h"
#include "tensor/rng.h"
#include "tests/tolerance.h"

using namespace smelt;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

enum class Ranges { causal, documents, window, random };

struct Sizes {
  int64_t batch, queries, keys, heads, kv_heads, size;
  Ranges ranges;
};

std::ostream& operator<<(std::ostream& out, const Sizes& s) {
  return out << "B " << s.batch << " Sq " << s.queries << " Sk " << s.keys << " A " << s.heads
             << " K " << s.kv_heads << " D " << s.size << " ranges " << int(s.ranges);
}

Tensor normal(const Shape& shape, uint64_t seed, DType dtype) {
  const Random random(seed, "attention");
  std::vector<double> values(static_cast<size_t>(numel_of(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i);
  return Tensor::from(values, shape).to(dtype);
}

struct Inputs {
  Sizes s;
  Tensor q, k, v, dout, begin, end;
  double scale;

  Inputs(const Sizes& sizes, DType dtype, uint64_t seed = 1)
      : s(sizes),
        q(normal({s.batch, s.queries, s.heads, s.size}, seed, dtype)),
        k(normal({s.batch, s.keys, s.kv_heads, s.size}, seed + 1, dtype)),
        v(normal({s.batch, s.keys, s.kv_heads, s.size}, seed + 2, dtype)),
        dout(normal({s.batch, s.queries, s.heads, s.size}, seed + 3, dtype)),
        scale(1 / std::sqrt(double(s.size))) {
    std::vector<int32_t> from, to;
    const Random random(seed, "ranges");
    const int64_t past = s.keys - s.queries;  // keys before the first query
    for (int64_t n = 0; n < s.batch * s.queries; ++n) {
      const int64_t last = past + n % s.queries + 1;
      int64_t lo = 0, hi = last;
      if (s.ranges == Ranges::documents) lo = (last - 1) / 37 * 37;
      if (s.ranges == Ranges::window) lo = std::max<int64_t>(0, last - 5);
      if (s.ranges == Ranges::random) {
        lo = int64_t(random.below(uint64_t(2 * n), uint64_t(s.keys + 1)));
        hi = lo + int64_t(random.below(uint64_t(2 * n + 1), uint64_t(s.keys - lo + 1)));
        if (n % 5 == 2) hi = lo;
      }
      from.push_back(int32_t(lo));
      to.push_back(int32_t(hi));
    }
    begin = Tensor::from(from, {s.batch, s.queries});
    end = Tensor::from(to, {s.batch, s.queries});
  }
  Attention forward() const { return attention(q, k, v, begin, end, scale); }
  AttentionGrad backward(const Attention& f) const {
    return attention_backward(dout, q, k, v, begin, end, scale, f);
  }
};

std::vector<double> values(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

struct Expected {
  std::vector<double> out, lse, dq, dk, dv;
};

/// Row by row in double. The row sums of dout * out use the given (rounded) out, as the contract
/// says, so that what remains to differ is the rounding of the results.
Expected reference(const Inputs& in, const Tensor& given_out) {
  const Sizes& s = in.s;
  const auto q = values(in.q), k = values(in.k), v = values(in.v), dout = values(in.dout);
  const auto rounded = values(given_out);
  const auto begin = in.begin.to_vector<int32_t>(), end = in.end.to_vector<int32_t>();
  Expected e{
      std::vector<double>(q.size()), std::vector<double>(size_t(s.batch * s.heads * s.queries)),
      std::vector<double>(q.size()), std::vector<double>(k.size()), std::vector<double>(k.size())};
  std::vector<double> p(size_t(s.keys));
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t i = 0; i < s.queries; ++i) {
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t row = ((b * s.queries + i) * s.heads + h) * s.size;
        const auto key = [&](int64_t j) {
          return ((b * s.keys + j) * s.kv_heads + h / (s.heads / s.kv_heads)) * s.size;
        };
        const int64_t lo = begin[size_t(b * s.queries + i)], hi = end[size_t(b * s.queries + i)];
        double max = -HUGE_VAL, sum = 0, delta = 0;
        for (int64_t j = lo; j < hi; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < s.size; ++d) dot += q[size_t(row + d)] * k[size_t(key(j) + d)];
          p[size_t(j)] = in.scale * dot;
          max = std::max(max, p[size_t(j)]);
        }
        for (int64_t j = lo; j < hi; ++j) sum += p[size_t(j)] = std::exp(p[size_t(j)] - max);
        e.lse[size_t((b * s.heads + h) * s.queries + i)] =
            lo < hi ? max + std::log(sum) : -HUGE_VAL;
        for (int64_t d = 0; d < s.size; ++d) {
          delta += dout[size_t(row + d)] * rounded[size_t(row + d)];
        }
        for (int64_t j = lo; j < hi; ++j) {
          const double w = p[size_t(j)] / sum;
          double dp = 0;
          for (int64_t d = 0; d < s.size; ++d) {
            const auto at = size_t(key(j) + d), to = size_t(row + d);
            e.out[to] += w * v[at];
            dp += dout[to] * v[at];
            e.dv[at] += w * dout[to];
          }
          const double ds = in.scale * w * (dp - delta);
          for (int64_t d = 0; d < s.size; ++d) {
            const auto at = size_t(key(j) + d), to = size_t(row + d);
            e.dq[to] += ds * k[at];
            e.dk[at] += ds * q[to];
          }
        }
      }
    }
  }
  return e;
}

/// Largest difference relative to the largest expected magnitude; equal infinities agree.
double distance(const Tensor& x, const std::vector<double>& want) {
  const auto got = values(x);
  BOOST_REQUIRE(got.size() == want.size());
  double worst = 0, largest = 1e-3;
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    if (std::isfinite(want[i])) largest = std::max(largest, std::abs(want[i]));
    const double difference = std::abs(got[i] - want[i]);
    worst = std::isnan(difference) ? HUGE_VAL : std::max(worst, difference);
  }
  return worst / largest;
}

/// For `distance`: scores are sums of D products, scaled by 1 / sqrt(D), and their gradient is made
/// of as many products of dout and v; out and dq are sums over keys, dk and dv over the queries of
/// all heads that share a key. bf16 also rounds the probabilities or the scores' gradient, once.
double tolerance(const Sizes& s, DType dtype) {
  return testing::tolerance::softmax_of_products(
             dtype, s.size, 2 / std::sqrt(double(s.size)),
             std::max(s.keys, s.queries * s.heads / s.kv_heads)) +
         (dtype == DType::bf16 ? testing::unit_roundoff(dtype) : 0);
}

bool same_bits(const Tensor& x, const Tensor& y) {
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         std::memcmp(x.raw(), y.raw(), size_t(x.bytes())) == 0;
}

void check_same_bits(const Inputs& x, const Inputs& y) {
  const Attention fx = x.forward(), fy = y.forward();
  const AttentionGrad gx = x.backward(fx), gy = y.backward(fy);
  BOOST_TEST(same_bits(fx.out, fy.out));
  BOOST_TEST(same_bits(fx.lse, fy.lse));
  BOOST_TEST(same_bits(gx.dq, gy.dq));
  BOOST_TEST(same_bits(gx.dk, gy.dk));
  BOOST_TEST(same_bits(gx.dv, gy.dv));
}

void check_against_reference(const Inputs& in) {
  const double allowed = tolerance(in.s, in.q.dtype());
  const Attention f = in.forward();
  const AttentionGrad g = in.backward(f);
  const Expected e = reference(in, f.out);
  BOOST_TEST_CONTEXT(in.s << " " << in.q.dtype() << " threads " << omp_get_max_threads()) {
    BOOST_TEST(distance(f.out, e.out) < allowed);
    BOOST_TEST(distance(f.lse, e.lse) < tolerance(in.s, f.lse.dtype()));
    BOOST_TEST(distance(g.dq, e.dq) < allowed);
    BOOST_TEST(distance(g.dk, e.dk) < allowed);
    BOOST_TEST(distance(g.dv, e.dv) < allowed);
  }
}

/// Positions [first, last) of every sequence.
Tensor part(const Tensor& x, int64_t first, int64_t last) { return x.slice(1, first, last); }

struct Threads {
  explicit Threads(int count) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(omp_get_num_procs()); }
};

const std::vector<Sizes> kSizes = {
    {1, 1, 1, 1, 1, 1, Ranges::causal},      {2, 7, 7, 2, 1, 3, Ranges::causal},
    {1, 131, 131, 4, 2, 16, Ranges::causal}, {2, 150, 150, 4, 1, 8, Ranges::documents},
    {1, 90, 90, 3, 3, 5, Ranges::window},    {3, 13, 29, 6, 3, 7, Ranges::random},
    {1, 70, 601, 2, 2, 33, Ranges::random},  {1, 300, 700, 4, 2, 9, Ranges::causal},
    {4, 1, 1300, 8, 2, 64, Ranges::causal},  {5, 1, 17, 4, 4, 3, Ranges::random},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(attention_op)

BOOST_AUTO_TEST_CASE(matches_the_reference_over_sizes_ranges_and_dtypes) {
  for (const Sizes& s : kSizes) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      check_against_reference(Inputs(s, dtype));
    }
  }
}

BOOST_AUTO_TEST_CASE(few_pairs_on_many_threads_match_the_reference) {
  for (const int threads : {1, 3, 4}) {
    const Threads scope(threads);
    check_against_reference(Inputs({1, 300, 300, 2, 1, 16, Ranges::causal}, DType::f32));
    check_against_reference(Inputs({1, 500, 500, 2, 1, 4, Ranges::random}, DType::bf16));
    check_against_reference(Inputs({2, 3, 9, 1, 1, 4, Ranges::random}, DType::f64));
  }
}

BOOST_AUTO_TEST_CASE(gradients_match_finite_differences) {
  for (const Ranges ranges : {Ranges::causal, Ranges::random}) {
    const Inputs in({2, 5, 6, 4, 2, 3, ranges}, DType::f64);
    const AttentionGrad g = in.backward(in.forward());
    const auto objective = [&] {
      const auto out = values(in.forward().out), weights = values(in.dout);
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += weights[i] * out[i];
      return sum;
    };
    for (const auto& [x, grad] : {std::pair{in.q, g.dq}, {in.k, g.dk}, {in.v, g.dv}}) {
      std::vector<double> numeric;
      double* const data = x.data<double>();
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double old = data[i], h = 1e-5;
        data[i] = old + h;
        const double up = objective();
        data[i] = old - h;
        numeric.push_back((up - objective()) / (2 * h));
        data[i] = old;
      }
      BOOST_TEST(distance(grad, numeric) < 1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(parts_of_a_projection_and_of_a_cache_equal_contiguous_tensors) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Inputs plain({2, 140, 140, 4, 2, 8, Ranges::causal}, dtype);
    Inputs views = plain;
    const Tensor fused = Tensor::full({2, 140, 8, 8}, kNaN, {dtype, {}});
    views.q = fused.slice(2, 0, 4);
    views.k = fused.slice(2, 4, 6);
    views.v = fused.slice(2, 6, 8);
    views.q.copy_(plain.q);
    views.k.copy_(plain.k);
    views.v.copy_(plain.v);
    check_same_bits(plain, views);

    const Tensor k_cache = Tensor::full({3, 200, 2, 8}, kNaN, {dtype, {}});
    const Tensor v_cache = Tensor::full({3, 200, 2, 8}, kNaN, {dtype, {}});
    views.k = k_cache.slice(0, 1, 3).slice(1, 20, 160);
    views.v = v_cache.slice(0, 0, 2).slice(1, 5, 145);
    views.k.copy_(plain.k);
    views.v.copy_(plain.v);
    check_same_bits(plain, views);

    // Heads that are not contiguous are copied, and so are repeated positions.
    views.k = plain.k.transpose(1, 2).clone().transpose(1, 2);
    check_same_bits(plain, views);
    views.v = plain.v.slice(1, 0, 1).expand(plain.v.shape());
    Inputs repeated = views;
    repeated.v = views.v.clone();
    check_same_bits(repeated, views);
  }
}

BOOST_AUTO_TEST_CASE(keys_that_no_query_sees_may_hold_anything) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t queries : {1, 6}) {
      Inputs zero({2, queries, 400, 4, 2, 8, Ranges::causal}, dtype);
      std::vector<int32_t> from, to;
      for (int64_t i = 0; i < 2 * queries; ++i) {  // nobody sees 10 .. 290 and 300 ..
        from.push_back(i % 2 == 0 ? 0 : 290);
        to.push_back(i % 2 == 0 ? 10 : 300);
      }
      zero.begin = Tensor::from(from, {2, queries});
      zero.end = Tensor::from(to, {2, queries});
      for (const Tensor& x : {zero.k, zero.v}) {
        part(x, 10, 290).zero_();
        part(x, 300, 400).zero_();
      }
      for (const double filling : {kNaN, HUGE_VAL}) {
        Inputs filled = zero;
        filled.k = zero.k.clone();
        filled.v = zero.v.clone();
        for (const Tensor& x : {filled.k, filled.v}) {
          part(x, 10, 290).fill_(filling);
          part(x, 300, 400).fill_(filling);
        }
        check_same_bits(zero, filled);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nan_reaches_only_the_queries_and_keys_it_meets) {
  const Inputs clean({1, 40, 40, 2, 1, 8, Ranges::causal}, DType::f32);
  const Attention f = clean.forward();
  const AttentionGrad g = clean.backward(f);
  for (const bool in_key : {true, false}) {
    Inputs in = clean;
    Tensor& x = in_key ? in.k : in.v;
    x = x.clone();
    part(x, 20, 21).fill_(kNaN);
    const Attention fx = in.forward();
    const AttentionGrad gx = in.backward(fx);
    BOOST_TEST(same_bits(part(fx.out, 0, 20), part(f.out, 0, 20)));
    BOOST_TEST(same_bits(part(gx.dq, 0, 20), part(g.dq, 0, 20)));
    for (const double value : values(part(fx.out, 20, 40))) BOOST_TEST(std::isnan(value));
  }
  // A query, or its gradient, with NaN reaches only the keys it sees: 0 .. 20.
  for (const bool in_query : {true, false}) {
    Inputs in = clean;
    Tensor& x = in_query ? in.q : in.dout;
    x = x.clone();
    part(x, 20, 21).fill_(kNaN);
    const Attention fx = in.forward();
    const AttentionGrad gx = in.backward(fx);
    BOOST_TEST(same_bits(part(gx.dk, 21, 40), part(g.dk, 21, 40)));
    BOOST_TEST(same_bits(part(gx.dv, 21, 40), part(g.dv, 21, 40)));
    for (const double value : values(part(gx.dk, 0, 21))) BOOST_TEST(std::isnan(value));
    BOOST_TEST(same_bits(part(gx.dq, 21, 40), part(g.dq, 21, 40)));
  }
}

BOOST_AUTO_TEST_CASE(case_49_a_document_does_not_see_the_one_before) {
  const Sizes s{1, 5, 5, 2, 1, 4, Ranges::causal};
  Inputs packed(s, DType::f32);
  packed.begin = Tensor::from(std::vector<int32_t>{0, 0, 0, 3, 3}, {1, 5});
  const Attention f = packed.forward();
  Inputs changed = packed;
  changed.k = packed.k.clone();
  changed.v = packed.v.clone();
  part(changed.k, 1, 2).fill_(9);
  part(changed.v, 1, 2).fill_(9);
  const Attention fc = changed.forward();
  BOOST_TEST(same_bits(part(f.out, 3, 5), part(fc.out, 3, 5)));
  BOOST_TEST(!same_bits(part(f.out, 0, 3), part(fc.out, 0, 3)));
  // Alone, and with the mask off.
  const Tensor begin = Tensor::zeros({1, 2}, {DType::i32, {}});
  const Tensor end = Tensor::from(std::vector<int32_t>{1, 2}, {1, 2});
  const Attention alone = attention(part(packed.q, 3, 5), part(packed.k, 3, 5),
                                    part(packed.v, 3, 5), begin, end, packed.scale);
  BOOST_TEST(distance(part(f.out, 3, 5), values(alone.out)) < 2 * tolerance(s, DType::f32));
  packed.begin = Tensor::zeros({1, 5}, {DType::i32, {}});
  BOOST_TEST(distance(part(packed.forward().out, 3, 5), values(alone.out)) > 1e-2);
}

BOOST_AUTO_TEST_CASE(case_51_a_sequence_does_not_depend_on_its_neighbours) {
  const Inputs all({7, 67, 67, 4, 2, 8, Ranges::causal}, DType::f32);
  const Attention f = all.forward();
  const AttentionGrad g = all.backward(f);
  for (int64_t b = 0; b < 7; ++b) {
    Inputs one = all;
    for (Tensor* x : {&one.q, &one.k, &one.v, &one.dout, &one.begin, &one.end}) {
      *x = x->slice(0, b, b + 1);
    }
    const Attention fo = one.forward();
    BOOST_TEST(same_bits(fo.out, f.out.slice(0, b, b + 1)));
    const AttentionGrad go = one.backward(fo);
    BOOST_TEST(same_bits(go.dq, g.dq.slice(0, b, b + 1)));
    BOOST_TEST(distance(go.dk, values(g.dk.slice(0, b, b + 1))) < 2 * tolerance(one.s, DType::f32));
  }
}

BOOST_AUTO_TEST_CASE(one_query_equals_the_last_of_many) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Inputs many({2, 300, 300, 8, 2, 16, Ranges::causal}, dtype);
    const Tensor begin = Tensor::zeros({2, 1}, {DType::i32, {}});
    const Tensor end = Tensor::full({2, 1}, 300, {DType::i32, {}});
    const Attention last =
        attention(part(many.q, 299, 300), many.k, many.v, begin, end, many.scale);
    const Attention f = many.forward();
    BOOST_TEST(distance(last.out, values(part(f.out, 299, 300))) < 2 * tolerance(many.s, dtype));
    BOOST_TEST(distance(last.lse, values(f.lse.slice(2, 299, 300))) <
               2 * tolerance(many.s, DType::f32));
  }
}

BOOST_AUTO_TEST_CASE(runs_repeat_bit_for_bit_and_read_no_fresh_memory) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Ranges ranges : {Ranges::causal, Ranges::random}) {
      const Inputs in({2, 300, 300, 4, 2, 16, ranges}, dtype);
      check_same_bits(in, in);
      const Attention f = in.forward();
      const AttentionGrad g = in.backward(f);
      allocator().set_poison(true);
      const Attention fp = in.forward();
      const AttentionGrad gp = in.backward(fp);
      allocator().set_poison(false);
      BOOST_TEST(same_bits(f.out, fp.out));
      BOOST_TEST(same_bits(f.lse, fp.lse));
      BOOST_TEST(same_bits(g.dq, gp.dq));
      BOOST_TEST(same_bits(g.dk, gp.dk));
      BOOST_TEST(same_bits(g.dv, gp.dv));
    }
  }
}

BOOST_AUTO_TEST_CASE(large_scores_neither_overflow_nor_vanish) {
  Inputs in({1, 40, 40, 2, 1, 8, Ranges::causal}, DType::f32);
  in.scale = 200;
  const Attention f = in.forward();
  const Expected e = reference(in, f.out);
  BOOST_TEST(distance(f.lse, e.lse) < 1e-6);
  for (const double value : values(f.out)) BOOST_TEST(std::isfinite(value));
}

BOOST_AUTO_TEST_CASE(empty_tensors_are_legal) {
  for (const Sizes& s :
       {Sizes{0, 3, 4, 2, 1, 4, Ranges::causal}, {2, 0, 4, 2, 1, 4, Ranges::causal}}) {
    const Inputs in(s, DType::f32);
    const AttentionGrad g = in.backward(in.forward());
    BOOST_TEST(g.dq.numel() == 0);
    for (const double value : values(g.dk)) BOOST_TEST(value == 0);
  }
  Inputs in({2, 3, 3, 2, 1, 4, Ranges::causal}, DType::f32);
  in.k = in.v = Tensor::empty({2, 0, 1, 4});
  in.end = in.begin = Tensor::zeros({2, 3}, {DType::i32, {}});
  const Attention f = in.forward();
  for (const double value : values(f.out)) BOOST_TEST(value == 0);
  for (const double value : values(f.lse)) BOOST_TEST(value == -HUGE_VAL);
  for (const double value : values(in.backward(f).dq)) BOOST_TEST(value == 0);
}

BOOST_AUTO_TEST_CASE(wrong_arguments_are_refused_by_name) {
  const Inputs good({1, 3, 3, 4, 2, 4, Ranges::causal}, DType::f32);
  const auto refuses = [](const Inputs& in, const std::string& text) {
    BOOST_CHECK_EXCEPTION(in.forward(), Error, [&](const Error& e) {
      return std::string(e.what()).find(text) != std::string::npos;
    });
  };
  Inputs in = good;
  in.q = normal({1, 3, 3, 4}, 1, DType::f32);
  refuses(in, "3 query heads are not a multiple of 2");
  in = good;
  in.k = in.k.to(DType::bf16);
  refuses(in, "attention: dtypes differ");
  in = good;
  in.q = in.k = in.v = Tensor::zeros({1, 3, 2, 4}, {DType::i32, {}});
  refuses(in, "must be f32, bf16 or f64, not i32");
  in = good;
  in.v = part(in.v, 0, 2);
  refuses(in, "[1, 2, 2, 4]");
  in = good;
  in.end = Tensor::from(std::vector<int32_t>{1, 4, 3}, {1, 3});
  refuses(in, "range of query 1 in sequence 0 is [0, 4), must lie within the 3 keys");
  in.end = Tensor::from(std::vector<int32_t>{1, -1, 3}, {1, 3});
  refuses(in, "[0, -1)");
  in.end = Tensor::zeros({3, 1}, {DType::i32, {}});
  refuses(in, "end must be [1, 3]");
  const Attention f = good.forward();
  BOOST_CHECK_THROW(attention_backward(good.k, good.q, good.k, good.v, good.begin, good.end, 1, f),
                    ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()
