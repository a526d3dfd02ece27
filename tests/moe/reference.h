// The looped MoE transformer once more, in plain loops over doubles: one sequence, one token at a
// time, slow. Shares no code with the engine; only tensor names and the configuration.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "moe/config.h"

namespace smelt::testing {

class ReferenceModel {
 public:
  using Vec = std::vector<double>;
  using Mat = std::vector<Vec>;

  struct Routed {
    int64_t layer, visit;
    Mat logits, probs;                         // [S][E]
    std::vector<std::vector<int64_t>> chosen;  // [S][K]
  };

  ReferenceModel(const ModelConfig& config, std::map<std::string, Vec> weights)
      : c_(config), w_(std::move(weights)) {}

  /// Logits [S][V]; starts[i] is the first position that position i sees. Appends to `routed`.
  Mat logits(const std::vector<int32_t>& tokens, const std::vector<int32_t>& starts) {
    routed.clear();
    const auto H = size_t(c_.hidden_size);
    Mat x;
    for (const int32_t id : tokens) {
      const Vec& table = w_.at("model.embed_tokens.weight");
      x.emplace_back(table.begin() + int64_t(size_t(id) * H),
                     table.begin() + int64_t(size_t(id + 1) * H));
    }
    std::map<int64_t, std::pair<Mat, Mat>> first_kv;  // of layers in the span
    const LoopConfig& loop = c_.loop;
    const double scale = loop.scale > 0 ? loop.scale : 1.0 / double(loop.visits);
    const auto run = [&](int64_t layer, int64_t visit, double s) {
      const bool reuse = loop.kv == LoopKv::first && visit > 0;
      step(x, layer, visit, s, starts, first_kv[layer], reuse);
    };
    const int64_t end = loop.start + loop.layers;
    for (int64_t l = 0; l < loop.start; ++l) run(l, 0, 1);
    if (loop.order == LoopOrder::span) {
      for (int64_t v = 0; v < loop.visits; ++v)
        for (int64_t l = loop.start; l < end; ++l) run(l, v, scale);
    } else {
      for (int64_t l = loop.start; l < end; ++l)
        for (int64_t v = 0; v < loop.visits; ++v) run(l, v, scale);
    }
    for (int64_t l = end; l < c_.num_layers; ++l) run(l, 0, 1);
    Mat result;
    const std::string head = c_.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    for (const Vec& t : x) result.push_back(times(head, norm(t, "model.norm.weight")));
    return result;
  }

  std::vector<Routed> routed;  // one per executed step of the last logits()

 private:
  Vec times(const std::string& name, const Vec& x) const {
    const Vec& w = w_.at(name);
    Vec y(w.size() / x.size(), 0.0);
    for (size_t o = 0; o < y.size(); ++o)
      for (size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    return y;
  }

  Vec norm(const Vec& x, const std::string& gain) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double rstd = 1 / std::sqrt(squares / double(x.size()) + c_.norm_eps);
    Vec y = x;
    for (size_t i = 0; i < x.size(); ++i) y[i] = w_.at(gain)[i] * x[i] * rstd;
    return y;
  }

  Vec clipped(Vec x) const {
    if (c_.clip_qkv > 0)
      for (double& v : x) v = std::min(std::max(v, -c_.clip_qkv), c_.clip_qkv);
    return x;
  }

  /// Norm of the whole or head by head, then rotation of (j, j + D/2) by position * theta^(-2j/D).
  Vec turned(const Vec& projected, int64_t position, const std::string& gain) const {
    const auto D = size_t(c_.head_dim);
    const Vec flat = c_.qk_norm == QkNorm::projection ? norm(projected, gain) : projected;
    Vec out;
    for (size_t h = 0; h < flat.size() / D; ++h) {
      Vec x(flat.begin() + int64_t(h * D), flat.begin() + int64_t((h + 1) * D));
      if (c_.qk_norm == QkNorm::head) x = norm(x, gain);
      x = clipped(x);
      Vec y = x;
      for (size_t j = 0; j < D / 2; ++j) {
        const double angle =
            double(position) * std::pow(c_.rope_theta, -2.0 * double(j) / double(D));
        y[j] = x[j] * std::cos(angle) - x[j + D / 2] * std::sin(angle);
        y[j + D / 2] = x[j + D / 2] * std::cos(angle) + x[j] * std::sin(angle);
      }
      out.insert(out.end(), y.begin(), y.end());
    }
    return out;
  }

  Vec swiglu(const std::string& prefix, const Vec& x) const {
    Vec a = times(prefix + ".gate_proj.weight", x);
    const Vec b = times(prefix + ".up_proj.weight", x);
    for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] / (1 + std::exp(-a[i])) * b[i];
    return times(prefix + ".down_proj.weight", a);
  }

  void step(Mat& x, int64_t layer, int64_t visit, double s, const std::vector<int32_t>& starts,
            std::pair<Mat, Mat>& kv, bool reuse) {
    const std::string p = "model.layers." + std::to_string(layer);
    const auto D = size_t(c_.head_dim), S = x.size();
    const size_t share = size_t(c_.num_heads / c_.num_kv_heads);
    Mat q;
    if (!reuse) kv = {};
    for (size_t t = 0; t < S; ++t) {
      const int64_t position = int64_t(t) - starts[t];
      const Vec n = norm(x[t], p + ".input_layernorm.weight");
      q.push_back(turned(times(p + ".self_attn.q_proj.weight", n), position,
                         p + ".self_attn.q_norm.weight"));
      if (reuse) continue;
      kv.first.push_back(turned(times(p + ".self_attn.k_proj.weight", n), position,
                                p + ".self_attn.k_norm.weight"));
      kv.second.push_back(clipped(times(p + ".self_attn.v_proj.weight", n)));
    }
    for (size_t t = 0; t < S; ++t) {
      Vec out(size_t(c_.num_heads) * D, 0.0);
      for (size_t h = 0; h < size_t(c_.num_heads); ++h) {
        const size_t g = h / share;
        Vec e;
        double sum = 0;
        for (size_t j = size_t(starts[t]); j <= t; ++j) {
          double dot = 0;
          for (size_t d = 0; d < D; ++d) dot += q[t][h * D + d] * kv.first[j][g * D + d];
          e.push_back(std::exp(dot / std::sqrt(double(D))));
          sum += e.back();
        }
        for (size_t j = size_t(starts[t]); j <= t; ++j)
          for (size_t d = 0; d < D; ++d)
            out[h * D + d] += e[j - size_t(starts[t])] / sum * kv.second[j][g * D + d];
      }
      const Vec update = times(p + ".self_attn.o_proj.weight", out);
      for (size_t i = 0; i < update.size(); ++i) x[t][i] += s * update[i];
    }
    Routed r{layer, visit, {}, {}, {}};
    for (size_t t = 0; t < S; ++t) {
      const Vec n = norm(x[t], p + ".post_attention_layernorm.weight");
      const Vec scores = times(p + ".mlp.gate.weight", n);
      Vec probs = scores;
      for (double& v : probs) v = std::exp(v);
      const double total = std::accumulate(probs.begin(), probs.end(), 0.0);
      for (double& v : probs) v /= total;
      std::vector<int64_t> order(probs.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return probs[size_t(a)] > probs[size_t(b)]; });
      order.resize(size_t(c_.top_k));
      double chosen_sum = 0;
      for (const int64_t e : order) chosen_sum += probs[size_t(e)];
      Vec update(n.size(), 0.0);
      for (const int64_t e : order) {
        const Vec y = swiglu(p + ".mlp.experts." + std::to_string(e), n);
        const double weight = probs[size_t(e)] / (c_.norm_topk ? chosen_sum : 1.0);
        for (size_t i = 0; i < y.size(); ++i) update[i] += weight * y[i];
      }
      if (c_.shared_expert_hidden_size > 0) {
        const Vec y = swiglu(p + ".mlp.shared_expert", n);
        for (size_t i = 0; i < y.size(); ++i) update[i] += y[i];
      }
      for (size_t i = 0; i < update.size(); ++i) x[t][i] += s * update[i];
      r.logits.push_back(scores);
      r.probs.push_back(probs);
      r.chosen.push_back(order);
    }
    routed.push_back(std::move(r));
  }

  ModelConfig c_;
  std::map<std::string, Vec> w_;
};

}  // namespace smelt::testing
