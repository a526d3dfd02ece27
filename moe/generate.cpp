#include "moe/generate.h"

#include <algorithm>

#include "tensor/rows.h"

namespace smelt {
namespace {

/// Logits [B, V] of the hidden state at `positions[b]` of each sequence.
std::vector<std::vector<float>> logits_at(const MoeTransformer& model, const Variable& hidden,
                                          int64_t seq_len, const std::vector<int64_t>& positions) {
  std::vector<int32_t> rows;
  for (size_t b = 0; b < positions.size(); ++b)
    rows.push_back(int32_t(int64_t(b) * seq_len + positions[b]));
  const Tensor logits =
      model.logits(Variable(gather_rows(hidden.data(), Tensor::from(rows)))).data().to(DType::f32);
  const auto flat = logits.to_vector<float>();
  std::vector<std::vector<float>> result;
  const auto vocab = logits.dim(1);
  for (int64_t b = 0; b < logits.dim(0); ++b)
    result.emplace_back(flat.begin() + b * vocab, flat.begin() + (b + 1) * vocab);
  return result;
}

}  // namespace

std::vector<std::vector<int32_t>> generate(MoeTransformer& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateConfig& config,
                                           const std::function<void(size_t, int32_t)>& on_token) {
  validate(config.sampling);
  SMELT_CHECK(ConfigError, config.max_new_tokens >= 0,
              "max_new_tokens = " << config.max_new_tokens << " must not be negative");
  const ModelConfig& shape = model.config();
  std::vector<std::vector<int32_t>> results(prompts.size());
  if (prompts.empty() || config.max_new_tokens == 0) return results;
  int64_t longest = 0;
  for (size_t b = 0; b < prompts.size(); ++b) {
    SMELT_CHECK(ConfigError, !prompts[b].empty(),
                "prompt " << b << " is empty; it needs at least one token");
    for (const int32_t id : prompts[b]) {
      SMELT_CHECK(
          ConfigError, id >= 0 && id < shape.vocab_size,
          "prompt " << b << " holds id " << id << ", must be in [0, " << shape.vocab_size << ")");
    }
    longest = std::max(longest, int64_t(prompts[b].size()));
  }
  SMELT_CHECK(ConfigError, longest + config.max_new_tokens <= shape.max_seq_len,
              "a prompt of " << longest << " tokens and " << config.max_new_tokens
                             << " new ones pass model.max_seq_len = " << shape.max_seq_len);

  const NoGrad no_grad;
  const auto batch = int64_t(prompts.size());
  KvCache cache(model.plan(), batch, longest + config.max_new_tokens, shape.num_kv_heads,
                shape.head_dim, {model.dtype(), {}});
  // Shorter prompts are padded behind their end: the padding is written to the cache, seen by
  // nobody, and overwritten by the tokens that follow.
  std::vector<int32_t> tokens(size_t(batch * longest), 0);
  std::vector<int64_t> lengths, last;
  for (size_t b = 0; b < prompts.size(); ++b) {
    std::copy(prompts[b].begin(), prompts[b].end(), tokens.begin() + int64_t(b) * longest);
    lengths.push_back(int64_t(prompts[b].size()));
    last.push_back(lengths.back() - 1);
  }
  int64_t width = longest;
  std::vector<bool> done(prompts.size(), false);
  for (int64_t i = 0; i < config.max_new_tokens; ++i) {
    const ModelInput input{Tensor::from(tokens), {}, SequenceLayout::behind(cache, width)};
    const auto logits = logits_at(model, model.hidden(input, &cache), width, last);
    cache.advance(lengths);
    width = 1;
    last.assign(prompts.size(), 0);
    lengths.assign(prompts.size(), 1);
    tokens.assign(prompts.size(), 0);
    for (size_t b = 0; b < prompts.size(); ++b) {
      if (done[b]) continue;
      tokens[b] = sample_token(logits[b], config.sampling, b, uint64_t(i));
      done[b] = tokens[b] == config.stop_id;
      if (done[b]) continue;
      results[b].push_back(tokens[b]);
      if (on_token) on_token(b, tokens[b]);
    }
    if (std::all_of(done.begin(), done.end(), [](bool d) { return d; })) break;
  }
  return results;
}

}  // namespace smelt
