// Grouped-query self-attention with rotary positions, with or without QK norm and clipping.
#pragma once

#include <memory>
#include <string>

#include "nn/attention_config.h"
#include "nn/execution_plan.h"
#include "nn/kv_cache.h"
#include "nn/modules.h"
#include "tensor/rotary.h"

namespace smelt {

/// What attention needs to know of a batch of B sequences of S positions, T = B * S.
struct SequenceLayout {
  int64_t batch = 0, seq_len = 0;
  Tensor positions;  // [T] i32, within the document
  Tensor key_begin;  // [B, S] i32, first key a position sees: the start of its document
  Tensor key_end;    // [B, S] i32, one past the last: itself (causal)

  /// From the in-sequence index of each position's document start, row-major [B, S].
  static SequenceLayout from_document_starts(int64_t batch, int64_t seq_len,
                                             const std::vector<int32_t>& starts);
  /// `count` positions behind what a cache holds, each sequence one document from position 0.
  static SequenceLayout behind(const KvCache& cache, int64_t count);
};

/// Keys and values [B, S, K, D] of one step, rotated and normalised as attention reads them.
struct KeyValue {
  Variable k, v;
};

class SelfAttention {
 public:
  SelfAttention(ParameterStore& store, const std::string& prefix, const AttentionConfig& config);

  /// Keys and values of x [T, H] (already normed).
  KeyValue key_value(const Variable& x, const SequenceLayout& layout,
                     const RotaryTable& table) const;
  /// o_proj(attention(q_proj(x), k, v)): [T, H]. k and v may be longer than the layout (a cache).
  Variable attend(const Variable& x, const KeyValue& kv, const SequenceLayout& layout,
                  const RotaryTable& table) const;

 private:
  /// [T, width], clipped where the configuration says so.
  Variable clipped(const Variable& x) const;
  Variable heads(const Variable& x, int64_t count, const std::unique_ptr<RmsNormModule>& norm,
                 const SequenceLayout& layout, const RotaryTable& table) const;

  AttentionConfig config_;
  Linear q_proj_;
  Linear kv_proj_;
  Linear o_proj_;
  std::unique_ptr<RmsNormModule> q_norm_, k_norm_;
};

}  // namespace smelt
