// Sizes and switches of the MoE transformer and of its load balancing: [model] and [moe].
#pragma once

#include <cstdint>

#include "nn/attention_config.h"
#include "nn/execution_plan.h"

namespace smelt {

struct ModelConfig {
  int64_t hidden_size = 128;
  int64_t num_layers = 4;
  int64_t num_heads = 4;
  int64_t num_kv_heads = 2;
  int64_t head_dim = 32;
  int64_t num_experts = 8;
  int64_t top_k = 2;
  int64_t expert_hidden_size = 128;
  int64_t shared_expert_hidden_size = 0;  // 0: no shared expert
  int64_t vocab_size = 257;
  int64_t max_seq_len = 2048;
  double rope_theta = 10000;
  double norm_eps = 1e-6;
  QkNorm qk_norm = QkNorm::head;
  double clip_qkv = 0;  // bound on |q|, |k| and |v|; 0: none
  bool norm_topk = true;
  bool tie_embeddings = false;
  double init_std = 0.02;
  LoopConfig loop;
};

/// What is computed again in the backward pass instead of being kept: nothing, the experts' part of
/// each step, or whole steps.
enum class Recompute { none, moe, block };
/// Its word in files and on the command line.
inline const char* to_text(Recompute value) {
  switch (value) {
    case Recompute::none:
      return "none";
    case Recompute::moe:
      return "moe";
    case Recompute::block:
      return "block";
  }
  return "";
}

enum class Balance { aux, bias, none };
enum class AuxScope { sequence, batch };

struct BalanceConfig {
  Balance balance = Balance::aux;
  AuxScope aux_scope = AuxScope::sequence;
  double aux_loss_coef = 0.01;
  double z_loss_coef = 1e-3;
  double bias_update_rate = 1e-3;
};

}  // namespace smelt
