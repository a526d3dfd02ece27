// The model against the slow reference in plain loops, with every loop option.
#include "tests/moe/reference.h"

#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

ReferenceModel reference_of(MoeTransformer& model) {
  std::map<std::string, std::vector<double>> weights;
  for (const auto& [name, value] : values_of(model)) weights[name] = doubles(value);
  return ReferenceModel(model.config(), std::move(weights));
}

/// Logits of every sequence of the batch by the reference, [T, V].
Tensor reference_logits(MoeTransformer& model, const Batch& batch) {
  ReferenceModel reference = reference_of(model);
  std::vector<double> flat;
  for (int64_t b = 0; b < batch.sequences; ++b) {
    const auto cut = [&](const std::vector<int32_t>& v) {
      return std::vector<int32_t>(v.begin() + b * batch.seq_len,
                                  v.begin() + (b + 1) * batch.seq_len);
    };
    for (const auto& row : reference.logits(cut(batch.tokens), cut(batch.starts)))
      flat.insert(flat.end(), row.begin(), row.end());
  }
  return Tensor::from(flat, {batch.sequences * batch.seq_len, model.config().vocab_size});
}

void check_against_reference(const ModelConfig& config) {
  const auto model = make_model(config, DType::f64);
  for (const Parameter* p : model->parameters().all()) {  // gains other than 1
    if (p->init == Init::ones)
      p->value.data().copy_(
          add_scaled(p->value.data(), random_tensor(p->value.shape(), DType::f64), 0.2));
  }
  const Batch batch = random_batch(2, 8, 3, true);
  const NoGrad no_grad;
  const Tensor expected = reference_logits(*model, batch);
  check_close(model->logits(model->hidden(batch.input())).data(), expected, 0,
              1e-12 * largest(expected));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(model_against_reference)

BOOST_AUTO_TEST_CASE(every_order_number_of_visits_and_use_of_keys) {
  for (const LoopOrder order : {LoopOrder::span, LoopOrder::layer}) {
    for (const LoopKv kv : {LoopKv::own, LoopKv::first}) {
      for (int64_t visits = 1; visits <= 4; ++visits) {
        BOOST_TEST_CONTEXT("order " << int(order) << ", kv " << int(kv) << ", visits " << visits) {
          check_against_reference(tiny_config(visits, order, kv));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(shared_expert_tied_head_plain_heads_and_raw_gates) {
  ModelConfig config = tiny_config(2, LoopOrder::span, LoopKv::first);
  config.shared_expert_hidden_size = 10;
  config.tie_embeddings = true;
  config.qk_norm = QkNorm::none;
  config.norm_topk = false;
  config.num_kv_heads = 2;
  check_against_reference(config);
}

BOOST_AUTO_TEST_CASE(norm_of_whole_projections_and_clipped_queries_keys_and_values) {
  for (const double clip : {0.0, 0.8}) {
    for (const QkNorm norm : {QkNorm::projection, QkNorm::none, QkNorm::head}) {
      ModelConfig config = tiny_config(2);
      config.num_kv_heads = 2;
      config.qk_norm = norm;
      config.clip_qkv = clip;
      BOOST_TEST_CONTEXT("norm " << int(norm) << ", clip " << clip) {
        check_against_reference(config);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(balance_terms_of_the_whole_model_follow_their_definitions) {
  const auto model = make_model(tiny_config(2), DType::f64);
  const Batch batch = random_batch(3, 8, 3, true);
  ReferenceModel reference = reference_of(*model);
  const double E = 4, K = 2, S = 8, B = 3;
  const size_t steps = 6;
  std::vector<std::vector<double>> pooled_f(steps, std::vector<double>(4, 0.0)),
      pooled_p = pooled_f;
  double by_sequence = 0, by_batch = 0, z = 0;
  for (int64_t b = 0; b < batch.sequences; ++b) {
    reference.logits({batch.tokens.begin() + b * 8, batch.tokens.begin() + (b + 1) * 8},
                     {batch.starts.begin() + b * 8, batch.starts.begin() + (b + 1) * 8});
    BOOST_REQUIRE_EQUAL(reference.routed.size(), steps);
    for (size_t i = 0; i < steps; ++i) {
      const auto& r = reference.routed[i];
      const double share = 1.0 / (4 * (r.layer == 1 || r.layer == 2 ? 2.0 : 1.0));
      std::vector<double> f(4, 0.0), p(4, 0.0);
      for (size_t t = 0; t < size_t(S); ++t) {
        for (const int64_t e : r.chosen[t]) f[size_t(e)] += 1 / (K * S);
        double sum = 0;
        for (size_t e = 0; e < 4; ++e) {
          p[e] += r.probs[t][e] / S;
          sum += std::exp(r.logits[t][e]);
        }
        z += share * std::log(sum) * std::log(sum) / (B * S);
      }
      for (size_t e = 0; e < 4; ++e) {
        by_sequence += share * E * f[e] * p[e] / B;
        pooled_f[i][e] += f[e] / B;
        pooled_p[i][e] += p[e] / B;
      }
    }
  }
  for (size_t i = 0; i < steps; ++i) {
    const double share = 1.0 / (4 * (i >= 1 && i <= 4 ? 2.0 : 1.0));
    for (size_t e = 0; e < 4; ++e) by_batch += share * E * pooled_f[i][e] * pooled_p[i][e];
  }
  BOOST_CHECK_GT(std::abs(by_sequence - by_batch), 1e-3);  // the two scopes can be told apart
  const ModelInput input = batch.input();
  for (const AuxScope scope : {AuxScope::sequence, AuxScope::batch}) {
    const PassLoss loss = model->loss(input, {.aux_scope = scope}, totals_of({input}));
    BOOST_CHECK_CLOSE_FRACTION(loss.aux.item(),
                               scope == AuxScope::sequence ? by_sequence : by_batch, 1e-12);
    BOOST_CHECK_CLOSE_FRACTION(loss.z.item(), z, 1e-12);
  }
}

BOOST_AUTO_TEST_SUITE_END()
