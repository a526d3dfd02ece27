// A published model whose budgets are known.
#pragma once

#include "moe/config.h"

namespace smelt {

/// The Baseline of the 200 M scale at 95 % (arXiv 2609.01343).
inline ModelConfig published_200m() {
  ModelConfig c;
  c.hidden_size = 1280;
  c.num_layers = 12;
  c.num_heads = 16;
  c.num_kv_heads = 4;
  c.head_dim = 80;
  c.num_experts = 192;
  c.top_k = 8;
  c.expert_hidden_size = 432;
  return c;
}

}  // namespace smelt
