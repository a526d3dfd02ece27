// What an attention layer is made of.
#pragma once

#include <cstdint>

namespace smelt {

/// RMSNorm of queries and keys before rotation: none (Mixtral), of each head with gains that the
/// heads share (Qwen3), or of the whole projection (OLMoE).
enum class QkNorm { none, head, projection };

struct AttentionConfig {
  int64_t hidden_size, num_heads, num_kv_heads, head_dim;
  QkNorm qk_norm;
  double norm_eps, init_std;
  double clip_qkv = 0;  // bound on |q|, |k| and |v| before rotation, after the norm; 0: none
};

}  // namespace smelt
