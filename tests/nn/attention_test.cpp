#include "nn/attention.h"

#include <numeric>

#include "autograd/elementwise.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

constexpr double kTheta = 10000, kEps = 1e-6;

AttentionConfig config_of(int64_t heads, int64_t kv_heads, QkNorm qk_norm, double clip = 0) {
  return {.hidden_size = 12,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = 6,
          .qk_norm = qk_norm,
          .norm_eps = kEps,
          .init_std = 0.4,
          .clip_qkv = clip};
}

struct Model {
  ParameterStore store;
  AttentionConfig config;
  SelfAttention attention;
  RotaryTable table;

  Model(const AttentionConfig& c, DType dtype)
      : store(dtype, {}),
        config(c),
        attention(store, "attn", c),
        table(rotary_table(32, c.head_dim, kTheta, accumulation_dtype(dtype))) {
    store.initialize(3);
    uint64_t seed = 8;  // gains that differ from element to element and from queries to keys
    for (Parameter* p : store.all())
      if (p->init == Init::ones)
        p->value.data().copy_(random_tensor(p->value.shape(), dtype, seed++));
  }
  Variable operator()(const Variable& x, const SequenceLayout& layout) const {
    return attention.attend(x, attention.key_value(x, layout, table), layout, table);
  }
  std::vector<double> piece(const std::string& name) {
    for (Parameter* p : store.all())
      for (const TensorPiece& piece : p->pieces)
        if (piece.name == "attn." + name + ".weight")
          return doubles(Parameter::view_piece(p->value.data(), piece));
    BOOST_FAIL("no parameter holds " << name);
    return {};
  }
};

/// Heads of one projection of token row x, normalised, clipped and rotated: [heads][D].
std::vector<std::vector<double>> naive_heads(const double* x, const AttentionConfig& c,
                                             const std::vector<double>& weight, int64_t count,
                                             const std::vector<double>& gain, double position,
                                             bool rotate) {
  const auto width = size_t(c.head_dim), hidden = size_t(c.hidden_size), half = width / 2;
  std::vector<std::vector<double>> heads(static_cast<size_t>(count), std::vector<double>(width));
  for (size_t h = 0; h < heads.size(); ++h) {
    for (size_t d = 0; d < width; ++d)
      for (size_t i = 0; i < hidden; ++i)
        heads[h][d] += weight[(h * width + d) * hidden + i] * x[i];
  }
  std::vector<double> squares(heads.size());  // mean of each head
  for (size_t h = 0; h < heads.size(); ++h)
    for (const double y : heads[h]) squares[h] += y * y / double(width);
  if (c.qk_norm == QkNorm::projection)
    squares.assign(heads.size(),
                   std::accumulate(squares.begin(), squares.end(), 0.0) / double(heads.size()));
  for (size_t h = 0; h < heads.size(); ++h) {
    std::vector<double> y = heads[h];
    for (size_t d = 0; d < width; ++d) {
      const size_t at = c.qk_norm == QkNorm::projection ? h * width + d : d;
      if (!gain.empty()) y[d] *= gain[at] / std::sqrt(squares[h] + kEps);
      if (c.clip_qkv > 0) y[d] = std::min(std::max(y[d], -c.clip_qkv), c.clip_qkv);
    }
    heads[h] = y;
    for (size_t j = 0; rotate && j < half; ++j) {
      const double angle = position * std::pow(kTheta, -2.0 * double(j) / double(width));
      heads[h][j] = y[j] * std::cos(angle) - y[j + half] * std::sin(angle);
      heads[h][j + half] = y[j + half] * std::cos(angle) + y[j] * std::sin(angle);
    }
  }
  return heads;
}

/// The module written out with an explicit S x S matrix of scores.
Tensor naive_attention(Model& model, const Tensor& input, int64_t batch, int64_t seq_len,
                       const std::vector<int32_t>& starts) {
  const AttentionConfig& c = model.config;
  const std::vector<double> x = doubles(input), wq = model.piece("q_proj"),
                            wk = model.piece("k_proj"), wv = model.piece("v_proj"),
                            wo = model.piece("o_proj");
  const std::vector<double> q_gain =
      c.qk_norm != QkNorm::none ? model.piece("q_norm") : std::vector<double>();
  const std::vector<double> k_gain =
      c.qk_norm != QkNorm::none ? model.piece("k_norm") : std::vector<double>();
  const auto hidden = size_t(c.hidden_size), width = size_t(c.head_dim);
  const auto heads = size_t(c.num_heads), group = heads / size_t(c.num_kv_heads);
  std::vector<double> out(x.size());
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<std::vector<std::vector<double>>> q, k, v;
    for (int64_t s = 0; s < seq_len; ++s) {
      const auto t = size_t(b * seq_len + s);
      const double position = double(s - starts[t]);
      q.push_back(naive_heads(&x[t * hidden], c, wq, c.num_heads, q_gain, position, true));
      k.push_back(naive_heads(&x[t * hidden], c, wk, c.num_kv_heads, k_gain, position, true));
      v.push_back(naive_heads(&x[t * hidden], c, wv, c.num_kv_heads, {}, position, false));
    }
    for (size_t s = 0; s < size_t(seq_len); ++s) {
      const size_t t = size_t(b * seq_len) + s;
      for (size_t h = 0; h < heads; ++h) {
        std::vector<double> p(size_t(seq_len), 0.0);
        double total = 0;
        for (auto j = size_t(starts[t]); j <= s; ++j) {
          double score = 0;
          for (size_t d = 0; d < width; ++d) score += q[s][h][d] * k[j][h / group][d];
          total += p[j] = std::exp(score / std::sqrt(double(width)));
        }
        for (size_t d = 0; d < width; ++d) {
          double mixed = 0;
          for (size_t j = 0; j < p.size(); ++j) mixed += p[j] / total * v[j][h / group][d];
          for (size_t i = 0; i < hidden; ++i)
            out[t * hidden + i] += wo[i * heads * width + h * width + d] * mixed;
        }
      }
    }
  }
  return Tensor::from(out, input.shape());
}

/// How far two passes over the same tokens in different company may be apart: products of other
/// sizes may add in another order. A path leads through sums of 12 (projection), 6 (norm), 6
/// (score), at most 7 (keys) and 24 terms (output), of values near 1, in either pass.
Tolerance other_order() {
  const Tolerance pass = tolerance::sum(DType::f32, 12 + 6 + 6 + 7 + 24, 1);
  return {2 * pass.rtol, 2 * pass.atol};
}

BOOST_AUTO_TEST_SUITE(self_attention)

BOOST_AUTO_TEST_CASE(matches_an_explicit_softmax) {
  struct Case {
    int64_t heads, kv_heads;
    QkNorm qk_norm;
    double clip = 0;
  };
  const std::vector<int32_t> whole(2 * 5, 0), documents = {0, 0, 2, 2, 4, 0, 1, 1, 1, 1};
  for (const Case& c : {Case{2, 2, QkNorm::none},
                        {4, 2, QkNorm::head},
                        {4, 1, QkNorm::none},
                        {3, 1, QkNorm::head},
                        {1, 1, QkNorm::head},
                        {4, 2, QkNorm::projection},
                        {1, 1, QkNorm::projection},
                        {4, 2, QkNorm::projection, 0.5},
                        {2, 1, QkNorm::none, 0.7},
                        {3, 1, QkNorm::head, 0.9}}) {
    for (const std::vector<int32_t>& starts : {whole, documents}) {
      BOOST_TEST_CONTEXT(c.heads << " heads, " << c.kv_heads << " kv heads, qk_norm "
                                 << int(c.qk_norm) << ", clip " << c.clip) {
        Model model(config_of(c.heads, c.kv_heads, c.qk_norm, c.clip), DType::f64);
        const Tensor x = random_tensor({10, 12}, DType::f64, 2);
        const SequenceLayout layout = SequenceLayout::from_document_starts(2, 5, starts);
        const Tensor expected = naive_attention(model, x, 2, 5, starts);
        check_close(model(Variable(x), layout).data(), expected, 1e-11, 1e-11);
        Model single(config_of(c.heads, c.kv_heads, c.qk_norm, c.clip), DType::f32);
        check_close(single(Variable(x.to(DType::f32)), layout).data(), expected, 1e-4, 1e-4);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(rotary_pairs_the_halves) {
  // CASES 48.
  const RotaryTable table = rotary_table(2, 4, kTheta, DType::f64);
  const Tensor y = rotary(Tensor::from<double>({1, 0, 0, 0}, {1, 1, 4}), Tensor::from<int32_t>({1}),
                          table, false);
  check_close(y, Tensor::from<double>({0.5403, 0, 0.8415, 0}, {1, 1, 4}), 0, 5e-5);
}

BOOST_AUTO_TEST_CASE(parameters_have_their_names_and_shapes) {
  Model with(config_of(4, 2, QkNorm::head), DType::f32),
      without(config_of(4, 2, QkNorm::none), DType::f32);
  std::vector<std::string> names;
  for (const Parameter* p : with.store.all())
    for (const TensorPiece& piece : p->pieces) names.push_back(piece.name + to_string(piece.shape));
  const std::vector<std::string> expected = {
      "attn.q_proj.weight[24, 12]", "attn.k_proj.weight[12, 12]", "attn.v_proj.weight[12, 12]",
      "attn.o_proj.weight[12, 24]", "attn.q_norm.weight[6]",      "attn.k_norm.weight[6]"};
  BOOST_TEST(names == expected, boost::test_tools::per_element());
  BOOST_TEST(with.store.numel() - without.store.numel() == 2 * 6);
  Model whole(config_of(4, 2, QkNorm::projection), DType::f32);  // gains of every head
  BOOST_TEST(whole.store.numel() - without.store.numel() == 4 * 6 + 2 * 6);
  BOOST_TEST(whole.piece("q_norm").size() == 24u);
  BOOST_TEST(whole.piece("k_norm").size() == 12u);
}

BOOST_AUTO_TEST_CASE(documents_do_not_see_each_other) {
  // CASES 49: A has 3 tokens, B 2.
  Model model(config_of(4, 2, QkNorm::head), DType::f32);
  const Tensor x = random_tensor({5, 12}, DType::f32, 2), changed = x.clone();
  changed.slice(0, 1, 2).fill_(0.7);
  const auto tail = [&](const Tensor& input, const std::vector<int32_t>& starts) {
    const SequenceLayout layout = SequenceLayout::from_document_starts(1, 5, starts);
    return model(Variable(input), layout).data().slice(0, 3, 5).clone();
  };
  const std::vector<int32_t> documents = {0, 0, 0, 3, 3}, whole = {0, 0, 0, 0, 0};
  check_same_bits(tail(x, documents), tail(changed, documents));
  const SequenceLayout alone = SequenceLayout::from_document_starts(1, 2, {0, 0});
  check_close(tail(x, documents), model(Variable(x.slice(0, 3, 5)), alone).data(), other_order());
  // Without the mask the change is seen: the comparison above can fail.
  double difference = 0;
  const std::vector<double> a = doubles(tail(x, whole)), b = doubles(tail(changed, whole));
  for (size_t i = 0; i < a.size(); ++i) difference = std::max(difference, std::abs(a[i] - b[i]));
  BOOST_TEST(difference > 1e-3);
}

BOOST_AUTO_TEST_CASE(later_tokens_do_not_change_earlier_ones) {
  Model model(config_of(2, 1, QkNorm::none), DType::f32);
  const Tensor x = random_tensor({6, 12}, DType::f32, 2), changed = x.clone();
  changed.slice(0, 4, 5).fill_(-2);
  const SequenceLayout layout = SequenceLayout::from_document_starts(1, 6, {0, 0, 0, 0, 0, 0});
  const Tensor a = model(Variable(x), layout).data(), b = model(Variable(changed), layout).data();
  check_same_bits(a.slice(0, 0, 4), b.slice(0, 0, 4));
  BOOST_TEST(doubles(a.slice(0, 4, 5)) != doubles(b.slice(0, 4, 5)));
}

BOOST_AUTO_TEST_CASE(decoding_with_a_cache_equals_the_full_pass) {
  // CASES 46: a prompt of one token first, then one by one; a prompt of three in the other row.
  Model model(config_of(4, 2, QkNorm::head), DType::f32);
  constexpr int64_t kLength = 7, kHidden = 12;
  const Tensor x = random_tensor({2, kLength, kHidden}, DType::f32, 2);
  const Tensor full =
      model(Variable(x.view({2 * kLength, kHidden})),
            SequenceLayout::from_document_starts(2, kLength, std::vector<int32_t>(2 * kLength, 0)))
          .data()
          .view({2, kLength, kHidden});
  KvCache cache(ExecutionPlan(1, {}), 2, kLength, 2, 6, {});
  // Each round feeds `count` tokens to both sequences, of which row b keeps advance[b].
  struct Round {
    int64_t count;
    std::vector<int64_t> advance;
  };
  for (const Round& round :
       {Round{3, {1, 3}}, {1, {1, 1}}, {2, {2, 1}}, {1, {1, 1}}, {1, {1, 1}}}) {
    const SequenceLayout layout = SequenceLayout::behind(cache, round.count);
    const Tensor input = Tensor::empty({2, round.count, kHidden});
    for (int64_t b = 0; b < 2; ++b) {
      const int64_t at = cache.lengths()[size_t(b)];
      input.slice(0, b, b + 1).copy_(x.slice(0, b, b + 1).slice(1, at, at + round.count));
    }
    const Variable in(input.view({2 * round.count, kHidden}));
    const KeyValue kv = model.attention.key_value(in, layout, model.table);
    cache.write(0, kv.k.data(), kv.v.data());
    const Tensor out =
        model.attention
            .attend(in, {Variable(cache.keys(0)), Variable(cache.values(0))}, layout, model.table)
            .data()
            .view({2, round.count, kHidden});
    for (int64_t b = 0; b < 2; ++b) {
      const int64_t at = cache.lengths()[size_t(b)];
      check_close(out.slice(0, b, b + 1), full.slice(0, b, b + 1).slice(1, at, at + round.count),
                  other_order());
    }
    cache.advance(round.advance);
  }
  BOOST_TEST(cache.lengths() == std::vector<int64_t>({6, 7}), boost::test_tools::per_element());
}

void check_gradients(const AttentionConfig& config) {
  Model model(config, DType::f64);
  const SequenceLayout layout = SequenceLayout::from_document_starts(2, 3, {0, 0, 2, 0, 1, 1});
  const Variable x(random_tensor({6, 12}, DType::f64, 2), true);
  const Variable w(random_tensor({6, 12}, DType::f64, 4));
  const auto loss = [&] { return sum(mul(model(x, layout), w)); };
  backward(loss());
  std::vector<Variable> leaves = model.store.variables();
  leaves.push_back(x);
  for (const Variable& leaf : leaves) {
    const std::vector<double> grad = doubles(leaf.grad());
    double* const values = leaf.data().data<double>();
    double error = 0, norm = 0;
    const NoGrad no_grad;
    for (size_t i = 0; i < grad.size(); i += 1 + grad.size() / 40) {
      const double centre = values[i], h = 1e-3;
      const auto at = [&](double distance) {
        values[i] = centre + distance;
        return loss().item();
      };
      const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
      values[i] = centre;
      error += (slope - grad[i]) * (slope - grad[i]);
      norm += std::max(slope * slope, grad[i] * grad[i]);
    }
    BOOST_TEST(norm > 0);
    BOOST_TEST(std::sqrt(error / norm) < 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(gradients_match_differences) {
  check_gradients(config_of(4, 2, QkNorm::head));
  check_gradients(config_of(4, 2, QkNorm::none));
  check_gradients(config_of(4, 2, QkNorm::projection));
  // The seed leaves no value so near the bound that a difference would step over it.
  check_gradients(config_of(4, 2, QkNorm::projection, 0.611));
}

BOOST_AUTO_TEST_CASE(layouts) {
  const SequenceLayout layout = SequenceLayout::from_document_starts(2, 3, {0, 0, 2, 0, 1, 1});
  const auto equal = [](const Tensor& t, const std::vector<double>& expected) {
    BOOST_TEST(doubles(t) == expected, boost::test_tools::per_element());
  };
  equal(layout.positions, {0, 1, 0, 0, 0, 1});
  equal(layout.key_begin, {0, 0, 2, 0, 1, 1});
  equal(layout.key_end, {1, 2, 3, 1, 2, 3});
  BOOST_CHECK_EXCEPTION(SequenceLayout::from_document_starts(2, 3, {0, 0}), ShapeError,
                        says("SequenceLayout: 2 document starts for 2 x 3 positions"));
  BOOST_CHECK_EXCEPTION(SequenceLayout::from_document_starts(1, 2, {1, 0}), ShapeError,
                        says("document start 1 of position 0 must be in [0, 0]"));
  BOOST_CHECK_THROW(SequenceLayout::from_document_starts(1, 2, {0, -1}), ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
