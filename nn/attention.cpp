#include "nn/attention.h"

#include <cmath>

#include "autograd/elementwise.h"
#include "autograd/layers.h"

namespace smelt {

SequenceLayout SequenceLayout::from_document_starts(int64_t batch, int64_t seq_len,
                                                    const std::vector<int32_t>& starts) {
  SMELT_CHECK(ShapeError, int64_t(starts.size()) == batch * seq_len,
              "SequenceLayout: " << starts.size() << " document starts for " << batch << " x "
                                 << seq_len << " positions");
  std::vector<int32_t> positions(starts.size()), ends(starts.size());
  for (int64_t t = 0; t < batch * seq_len; ++t) {
    const auto in_sequence = int32_t(t % seq_len);
    const int32_t start = starts[size_t(t)];
    SMELT_CHECK(ShapeError, 0 <= start && start <= in_sequence,
                "SequenceLayout: document start " << start << " of position " << in_sequence
                                                  << " must be in [0, " << in_sequence << "]");
    positions[size_t(t)] = in_sequence - start;
    ends[size_t(t)] = in_sequence + 1;
  }
  return {batch, seq_len, Tensor::from(positions), Tensor::from(starts, {batch, seq_len}),
          Tensor::from(ends, {batch, seq_len})};
}

SequenceLayout SequenceLayout::behind(const KvCache& cache, int64_t count) {
  const int64_t batch = cache.batch();
  std::vector<int32_t> positions, ends;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < count; ++i) {
      positions.push_back(int32_t(cache.lengths()[size_t(b)] + i));
      ends.push_back(positions.back() + 1);
    }
  }
  return {batch, count, Tensor::from(positions), Tensor::zeros({batch, count}, {DType::i32, {}}),
          Tensor::from(ends, {batch, count})};
}

SelfAttention::SelfAttention(ParameterStore& store, const std::string& prefix,
                             const AttentionConfig& config)
    : config_(config),
      q_proj_(store, prefix + ".q_proj.weight", config.hidden_size,
              config.num_heads * config.head_dim, config.init_std),
      kv_proj_(store, prefix + ".kv_proj", config.hidden_size,
               {{prefix + ".k_proj.weight", config.num_kv_heads * config.head_dim},
                {prefix + ".v_proj.weight", config.num_kv_heads * config.head_dim}},
               config.init_std),
      o_proj_(store, prefix + ".o_proj.weight", config.num_heads * config.head_dim,
              config.hidden_size, config.init_std) {
  if (config.qk_norm == QkNorm::none) return;
  const bool whole = config.qk_norm == QkNorm::projection;
  q_norm_ = std::make_unique<RmsNormModule>(store, prefix + ".q_norm.weight",
                                            config.head_dim * (whole ? config.num_heads : 1),
                                            config.norm_eps);
  k_norm_ = std::make_unique<RmsNormModule>(store, prefix + ".k_norm.weight",
                                            config.head_dim * (whole ? config.num_kv_heads : 1),
                                            config.norm_eps);
}

Variable SelfAttention::clipped(const Variable& x) const {
  return config_.clip_qkv > 0 ? clamp(x, config_.clip_qkv) : x;
}

Variable SelfAttention::heads(const Variable& x, int64_t count,
                              const std::unique_ptr<RmsNormModule>& norm,
                              const SequenceLayout& layout, const RotaryTable& table) const {
  const int64_t T = x.dim(0), width = count * config_.head_dim;
  const Shape by_head = {T, count, config_.head_dim};
  Variable h = reshape(x, config_.qk_norm == QkNorm::head ? by_head : Shape{T, width});
  if (norm) h = (*norm)(h);
  h = rotary(reshape(clipped(h), by_head), layout.positions, table);
  return reshape(h, {layout.batch, layout.seq_len, count, config_.head_dim});
}

KeyValue SelfAttention::key_value(const Variable& x, const SequenceLayout& layout,
                                  const RotaryTable& table) const {
  const int64_t width = config_.num_kv_heads * config_.head_dim;
  const std::vector<Variable> parts = split_columns(kv_proj_(x), {width, width});
  return {heads(parts[0], config_.num_kv_heads, k_norm_, layout, table),
          reshape(clipped(reshape(parts[1], {x.dim(0), width})),
                  {layout.batch, layout.seq_len, config_.num_kv_heads, config_.head_dim})};
}

Variable SelfAttention::attend(const Variable& x, const KeyValue& kv, const SequenceLayout& layout,
                               const RotaryTable& table) const {
  const Variable q = heads(q_proj_(x), config_.num_heads, q_norm_, layout, table);
  const Variable out = attention(q, kv.k, kv.v, layout.key_begin, layout.key_end,
                                 1.0 / std::sqrt(double(config_.head_dim)));
  return o_proj_(reshape(out, {x.dim(0), config_.num_heads * config_.head_dim}));
}

}  // namespace smelt
