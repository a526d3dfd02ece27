#include "apps/common/model_json.h"

#include <cmath>

#include <boost/json.hpp>

#include "apps/common/config.h"
#include "apps/common/exact_json.h"
#include "apps/common/run_folder.h"

namespace smelt {
namespace {

namespace json = boost::json;

/// Typed look-up in a JSON object whose errors name file and key.
class Reader {
 public:
  Reader(const json::object& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  const json::value* find(const char* key) const {
    const json::value* value = object_.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  const json::value& need(const char* key) const {
    const json::value* value = find(key);
    SMELT_CHECK(IoError, value != nullptr, where_ << ": key '" << key << "' is missing");
    return *value;
  }
  int64_t integer(const char* key) const { return integer_of(key, need(key)); }
  int64_t integer(const char* key, int64_t otherwise) const {
    const json::value* value = find(key);
    return value ? integer_of(key, *value) : otherwise;
  }
  double number(const char* key) const { return number_of(key, need(key)); }
  double number(const char* key, double otherwise) const {
    const json::value* value = find(key);
    return value ? number_of(key, *value) : otherwise;
  }
  bool boolean(const char* key, bool otherwise) const {
    const json::value* value = find(key);
    if (value == nullptr) return otherwise;
    SMELT_CHECK(
        IoError, value->is_bool(),
        where_ << ": " << key << " = " << json::serialize(*value) << " must be true or false");
    return value->as_bool();
  }
  std::string text(const char* key) const {
    const json::value& value = need(key);
    SMELT_CHECK(IoError, value.is_string(),
                where_ << ": " << key << " = " << json::serialize(value) << " must be a text");
    return std::string(value.as_string());
  }

 private:
  int64_t integer_of(const char* key, const json::value& value) const {
    SMELT_CHECK(IoError, value.is_int64(),
                where_ << ": " << key << " = " << json::serialize(value) << " must be an integer");
    return value.as_int64();
  }
  double number_of(const char* key, const json::value& value) const {
    SMELT_CHECK(IoError, value.is_number(),
                where_ << ": " << key << " = " << json::serialize(value) << " must be a number");
    return value.to_number<double>();
  }
  const json::object& object_;
  std::string where_;
};

template <typename T>
T one_of(const std::string& word, const std::string& where, std::initializer_list<T> values) {
  std::string allowed;
  for (const T value : values) {
    if (word == to_text(value)) return value;
    allowed += std::string(allowed.empty() ? "" : " or ") + to_text(value);
  }
  SMELT_CHECK(IoError, false, where << " = " << word << " must be " << allowed);
  return *values.begin();
}

/// JSON with indentation; Boost.JSON prints on one line.
void print(std::string& out, const json::value& value, int depth) {
  if (!value.is_object() || value.as_object().empty()) {
    out += json::serialize(value);
    return;
  }
  const std::string indent(size_t(depth + 1) * 2, ' ');
  out += "{\n";
  bool first = true;
  for (const auto& [key, entry] : value.as_object()) {
    if (!first) out += ",\n";
    first = false;
    out += indent + json::serialize(json::string(key)) + ": ";
    print(out, entry, depth + 1);
  }
  out += "\n" + std::string(size_t(depth) * 2, ' ') + "}";
}

}  // namespace

bool is_qwen3_moe(const ModelConfig& c) {
  // A span that runs once may still scale its residual updates.
  const bool once = c.loop.visits == 1 && (c.loop.scale == 0 || c.loop.scale == 1);
  return (c.loop.layers == 0 || once) && c.qk_norm && c.shared_expert_hidden_size == 0;
}

std::string write_model_json(const ModelConfig& c, int32_t eod_id, bool selection_bias) {
  const bool plain = is_qwen3_moe(c) && !selection_bias;
  json::object o;
  o["architectures"] = json::array{plain ? "Qwen3MoeForCausalLM" : "SmeltForCausalLM"};
  o["attention_bias"] = false;
  o["attention_dropout"] = 0.0;
  o["bos_token_id"] = nullptr;
  o["decoder_sparse_step"] = 1;
  o["dtype"] = "float32";
  o["eos_token_id"] = eod_id >= 0 ? json::value(eod_id) : json::value(nullptr);
  o["head_dim"] = c.head_dim;
  o["hidden_act"] = "silu";
  o["hidden_size"] = c.hidden_size;
  o["initializer_range"] = c.init_std;
  o["intermediate_size"] = c.expert_hidden_size;
  o["max_position_embeddings"] = c.max_seq_len;
  o["mlp_only_layers"] = json::array{};
  o["model_type"] = plain ? "qwen3_moe" : "smelt";
  o["moe_intermediate_size"] = c.expert_hidden_size;
  o["norm_topk_prob"] = c.norm_topk;
  o["num_attention_heads"] = c.num_heads;
  o["num_experts"] = c.num_experts;
  o["num_experts_per_tok"] = c.top_k;
  o["num_hidden_layers"] = c.num_layers;
  o["num_key_value_heads"] = c.num_kv_heads;
  o["num_local_experts"] = c.num_experts;
  o["output_router_logits"] = false;
  o["pad_token_id"] = nullptr;
  o["rms_norm_eps"] = c.norm_eps;
  o["rope_parameters"] = json::object{{"rope_theta", c.rope_theta}, {"rope_type", "default"}};
  o["rope_scaling"] = nullptr;
  o["rope_theta"] = c.rope_theta;
  o["router_aux_loss_coef"] = 0.001;
  o["sliding_window"] = nullptr;
  o["tie_word_embeddings"] = c.tie_embeddings;
  o["torch_dtype"] = "float32";
  o["use_cache"] = true;
  o["use_sliding_window"] = false;
  o["vocab_size"] = c.vocab_size;
  if (!plain) {
    o["qk_norm"] = c.qk_norm;
    o["shared_expert_intermediate_size"] = c.shared_expert_hidden_size;
    o["loop"] = json::object{{"start", c.loop.start},          {"layers", c.loop.layers},
                             {"visits", c.loop.visits},        {"scale", c.loop.scale},
                             {"order", to_text(c.loop.order)}, {"kv", to_text(c.loop.kv)}};
  }
  std::string text;
  print(text, o, 0);
  return text + "\n";
}

ModelJson read_model_json(const std::string& folder) {
  const std::string path = folder + "/config.json";
  boost::system::error_code error;
  const json::value parsed = parse_json(read_text_file(path), error);
  SMELT_CHECK(IoError, !error, path << ": not JSON: " << error.message());
  SMELT_CHECK(IoError, parsed.is_object(), path << ": must hold a JSON object");
  const Reader in(parsed.as_object(), path);
  const std::string type = in.text("model_type");
  SMELT_CHECK(IoError, type == "qwen3_moe" || type == "smelt",
              path << ": model_type = " << type << " must be qwen3_moe or smelt");
  ModelJson result;
  ModelConfig& c = result.config;
  c.hidden_size = in.integer("hidden_size");
  c.num_layers = in.integer("num_hidden_layers");
  c.num_heads = in.integer("num_attention_heads");
  c.num_kv_heads = in.integer("num_key_value_heads");
  SMELT_CHECK(IoError, c.num_heads >= 1,
              path << ": num_attention_heads = " << c.num_heads << " must be at least 1");
  c.head_dim = in.integer("head_dim", c.hidden_size / c.num_heads);
  c.num_experts =
      in.find("num_experts") ? in.integer("num_experts") : in.integer("num_local_experts");
  const int64_t again = in.integer("num_local_experts", c.num_experts);
  SMELT_CHECK(IoError, again == c.num_experts,
              path << ": num_experts = " << c.num_experts << " and num_local_experts = " << again
                   << " differ");
  c.top_k = in.integer("num_experts_per_tok");
  c.expert_hidden_size = in.integer("moe_intermediate_size");
  c.vocab_size = in.integer("vocab_size");
  c.max_seq_len = in.integer("max_position_embeddings", 32768);
  c.norm_eps = in.number("rms_norm_eps", 1e-6);
  c.init_std = in.number("initializer_range", 0.02);
  c.norm_topk = in.boolean("norm_topk_prob", false);
  c.tie_embeddings = in.boolean("tie_word_embeddings", false);
  SMELT_CHECK(IoError, !in.boolean("attention_bias", false),
              path << ": attention_bias = true is not supported");
  const int64_t sparse_step = in.integer("decoder_sparse_step", 1);
  SMELT_CHECK(IoError, sparse_step == 1,
              path << ": decoder_sparse_step = " << sparse_step << " must be 1");
  if (const json::value* dense = in.find("mlp_only_layers")) {
    SMELT_CHECK(IoError, dense->is_array() && dense->as_array().empty(),
                path << ": mlp_only_layers = " << json::serialize(*dense)
                     << " must be []: every layer is a MoE layer");
  }
  c.rope_theta = in.number("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json::value* rope = in.find(key);
    if (rope == nullptr) continue;
    SMELT_CHECK(IoError, rope->is_object(), path << ": " << key << " must be an object");
    const Reader rope_in(rope->as_object(), path + ": " + key);
    const std::string kind =
        rope_in.find("rope_type") ? rope_in.text("rope_type") : rope_in.text("type");
    SMELT_CHECK(IoError, kind == "default",
                path << ": " << key << ".rope_type = " << kind << " must be default");
    c.rope_theta = rope_in.number("rope_theta", c.rope_theta);
  }
  if (const json::value* eos = in.find("eos_token_id")) {
    if (eos->is_int64()) result.eod_id = int32_t(eos->as_int64());
  }
  if (type == "smelt") {
    c.qk_norm = in.boolean("qk_norm", true);
    c.shared_expert_hidden_size = in.integer("shared_expert_intermediate_size", 0);
    const json::value& loop = in.need("loop");
    SMELT_CHECK(IoError, loop.is_object(), path << ": loop must be an object");
    const Reader loop_in(loop.as_object(), path + ": loop");
    c.loop.start = loop_in.integer("start");
    c.loop.layers = loop_in.integer("layers");
    c.loop.visits = loop_in.integer("visits");
    c.loop.scale = loop_in.number("scale");
    c.loop.order =
        one_of(loop_in.text("order"), path + ": loop.order", {LoopOrder::span, LoopOrder::layer});
    c.loop.kv = one_of(loop_in.text("kv"), path + ": loop.kv", {LoopKv::own, LoopKv::first});
  }
  return result;
}

}  // namespace smelt
