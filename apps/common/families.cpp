#include "apps/common/families.h"

#include <charconv>

#include "nn/execution_plan.h"

namespace smelt {
namespace {

/// Endings of names that differ from ours, behind "model.layers.N."; * stands for the expert's
/// number. Qwen3-MoE and OLMoE name every tensor as we do.
struct Renamed {
  Family family;
  const char* ours;
  const char* theirs;
};
constexpr Renamed kTable[] = {
    {Family::mixtral, "mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {Family::mixtral, "mlp.experts.*.gate_proj.weight", "block_sparse_moe.experts.*.w1.weight"},
    {Family::mixtral, "mlp.experts.*.up_proj.weight", "block_sparse_moe.experts.*.w3.weight"},
    {Family::mixtral, "mlp.experts.*.down_proj.weight", "block_sparse_moe.experts.*.w2.weight"},
};

constexpr std::string_view kExperts = "mlp.experts.";

/// The part of a name behind "model.layers.N."; npos for tensors outside the layers.
size_t behind_layer(const std::string& name) {
  if (!name.starts_with("model.layers.")) return std::string::npos;
  const size_t dot = name.find('.', 13);
  return dot == std::string::npos ? dot : dot + 1;
}

/// Puts the number of an expert in place of *.
std::string numbered(std::string pattern, std::string_view number) {
  if (const size_t star = pattern.find('*'); star != std::string::npos)
    pattern.replace(star, 1, number);
  return pattern;
}

/// The digits of "mlp.experts.12.up_proj.weight"; empty for other endings.
std::string_view expert_digits(std::string_view ending) {
  if (!ending.starts_with(kExperts)) return {};
  ending.remove_prefix(kExperts.size());
  return ending.substr(0, ending.find('.'));
}

bool loops(const ModelConfig& c) {
  // A span that runs once may still scale its residual updates.
  const bool once = c.loop.visits == 1 && (c.loop.scale == 0 || c.loop.scale == 1);
  return c.loop.layers > 0 && !once;
}

}  // namespace

const char* to_text(Family family) {
  switch (family) {
    case Family::smelt:
      return "smelt";
    case Family::qwen3_moe:
      return "qwen3_moe";
    case Family::olmoe:
      return "olmoe";
    case Family::mixtral:
      return "mixtral";
  }
  return "";
}

std::string why_not_plain(const ModelConfig& c, bool selection_bias) {
  if (loops(c)) return "its loop";
  if (selection_bias) return "its selection biases (balance = bias): no router there has any";
  if (c.shared_expert_hidden_size > 0) return "its shared experts";
  switch (c.qk_norm) {
    case QkNorm::head:
      return c.clip_qkv > 0 ? "clip_qkv, which goes with qk_norm = projection only" : "";
    case QkNorm::projection:
      return c.num_heads * c.head_dim != c.hidden_size
                 ? "qk_norm = projection with num_heads x head_dim other than hidden_size"
                 : "";
    case QkNorm::none:
      break;
  }
  if (c.clip_qkv > 0) return "clip_qkv, which goes with qk_norm = projection only";
  return c.norm_topk ? "" : "norm_topk = false, which does not go with qk_norm = false";
}

Family family_of(const ModelConfig& c, bool selection_bias) {
  if (!why_not_plain(c, selection_bias).empty()) return Family::smelt;
  return c.qk_norm == QkNorm::head         ? Family::qwen3_moe
         : c.qk_norm == QkNorm::projection ? Family::olmoe
                                           : Family::mixtral;
}

std::string expert_bias_name(int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".mlp.gate.expert_bias";
}

void for_each_tensor(const ModelConfig& c, bool selection_bias,
                     const std::function<void(const std::string&, const Shape&)>& visit) {
  const int64_t H = c.hidden_size, F = c.expert_hidden_size, Fs = c.shared_expert_hidden_size;
  const int64_t Q = c.num_heads * c.head_dim, C = c.num_kv_heads * c.head_dim;
  const ExecutionPlan plan(c.num_layers, c.loop);
  visit("model.embed_tokens.weight", {c.vocab_size, H});
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const auto mlp = [&](const std::string& name, int64_t width) {
      visit(prefix + name + ".gate_proj.weight", {width, H});
      visit(prefix + name + ".up_proj.weight", {width, H});
      visit(prefix + name + ".down_proj.weight", {H, width});
    };
    visit(prefix + "input_layernorm.weight", {H});
    visit(prefix + "self_attn.q_proj.weight", {Q, H});
    visit(prefix + "self_attn.k_proj.weight", {C, H});
    visit(prefix + "self_attn.v_proj.weight", {C, H});
    visit(prefix + "self_attn.o_proj.weight", {H, Q});
    if (c.qk_norm != QkNorm::none) {
      const bool whole = c.qk_norm == QkNorm::projection;
      visit(prefix + "self_attn.q_norm.weight", {whole ? Q : c.head_dim});
      visit(prefix + "self_attn.k_norm.weight", {whole ? C : c.head_dim});
    }
    visit(prefix + "post_attention_layernorm.weight", {H});
    visit(prefix + "mlp.gate.weight", {c.num_experts, H});
    for (int64_t e = 0; e < c.num_experts; ++e) mlp("mlp.experts." + std::to_string(e), F);
    if (Fs > 0) mlp("mlp.shared_expert", Fs);
    if (selection_bias) visit(expert_bias_name(layer), {plan.visits_of(layer), c.num_experts});
  }
  visit("model.norm.weight", {H});
  if (!c.tie_embeddings) visit("lm_head.weight", {c.vocab_size, H});
}

std::string family_name(Family family, const std::string& ours) {
  const size_t at = behind_layer(ours);
  if (at == std::string::npos) return ours;
  const std::string ending = ours.substr(at);
  const std::string_view digits = expert_digits(ending);
  for (const Renamed& row : kTable) {
    if (row.family == family && numbered(row.ours, digits) == ending)
      return ours.substr(0, at) + numbered(row.theirs, digits);
  }
  return ours;
}

FusedPart fused_part(const std::string& ours, const Shape& shape, int64_t num_experts) {
  const size_t at = behind_layer(ours);
  if (at == std::string::npos) return {};
  const std::string_view ending = std::string_view(ours).substr(at);
  const std::string_view digits = expert_digits(ending);
  int64_t expert = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), expert).ec != std::errc() ||
      shape.size() != 2)
    return {};
  const int64_t rows = shape[0], columns = shape[1];
  const std::string prefix = ours.substr(0, at) + std::string(kExperts);
  if (ending.ends_with(".down_proj.weight"))
    return {prefix + "down_proj", {num_experts, rows, columns}, expert * rows * columns};
  const int64_t half = ending.ends_with(".up_proj.weight") ? 1 : 0;
  return {prefix + "gate_up_proj",
          {num_experts, 2 * rows, columns},
          (2 * expert + half) * rows * columns};
}

}  // namespace smelt
