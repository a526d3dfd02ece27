#include "apps/common/model_json.h"

#include <cmath>

#include <boost/json.hpp>

#include "apps/common/config.h"
#include "apps/common/config_schema.h"
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

/// Qualities that a family has whatever its config.json says, and what absent keys mean there.
struct FamilyDefaults {
  QkNorm qk_norm;
  const char* expert_width;  // the key
  double norm_eps, rope_theta;
  int64_t max_positions;
};
FamilyDefaults defaults_of(Family family) {
  switch (family) {
    case Family::olmoe:
      return {QkNorm::projection, "intermediate_size", 1e-5, 1e4, 4096};
    case Family::mixtral:
      return {QkNorm::none, "intermediate_size", 1e-5, 1e6, 4096 * 32};
    case Family::smelt:
    case Family::qwen3_moe:
      break;
  }
  return {QkNorm::head, "moe_intermediate_size", 1e-6, 1e4, 32768};
}

/// rope_scaling before rope_parameters before rope_theta, as transformers reads them.
double read_rope_theta(const Reader& in, const std::string& path, double otherwise) {
  double theta = in.number("rope_theta", otherwise);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json::value* rope = in.find(key);
    if (rope == nullptr) continue;
    SMELT_CHECK(IoError, rope->is_object(), path << ": " << key << " must be an object");
    const Reader rope_in(rope->as_object(), path + ": " + key);
    const std::string kind =
        rope_in.find("rope_type") ? rope_in.text("rope_type") : rope_in.text("type");
    SMELT_CHECK(IoError, kind == "default",
                path << ": " << key << ".rope_type = " << kind << " must be default");
    const double part = rope_in.number("partial_rotary_factor", 1);
    SMELT_CHECK(IoError, part == 1,
                path << ": " << key << ".partial_rotary_factor = " << part << " must be 1");
    theta = rope_in.number("rope_theta", theta);
  }
  return theta;
}

void read_experts(const Reader& in, const std::string& path, ModelConfig& c) {
  c.num_experts =
      in.find("num_experts") ? in.integer("num_experts") : in.integer("num_local_experts");
  const int64_t again = in.integer("num_local_experts", c.num_experts);
  SMELT_CHECK(IoError, again == c.num_experts,
              path << ": num_experts = " << c.num_experts << " and num_local_experts = " << again
                   << " differ");
}

/// What would make another model of it.
void refuse_unknown_parts(const Reader& in, const std::string& path, Family family) {
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
  if (in.find("hidden_act")) {
    const std::string act = in.text("hidden_act");
    SMELT_CHECK(IoError, act == "silu", path << ": hidden_act = " << act << " must be silu");
  }
  // Qwen3-MoE names a window that it uses only on request.
  const bool windowed = family == Family::mixtral || family == Family::olmoe
                            ? in.find("sliding_window") != nullptr
                            : in.boolean("use_sliding_window", false);
  SMELT_CHECK(IoError, !windowed,
              path << ": sliding_window must be null: attention reaches back without limit here");
}

void read_eos(const Reader& in, const std::string& path, ModelJson& result) {
  const json::value* eos = in.find("eos_token_id");
  if (eos == nullptr) return;
  const json::array list = eos->is_array() ? eos->as_array() : json::array{*eos};
  for (const json::value& id : list) {
    SMELT_CHECK(
        IoError, id.is_int64() && id.as_int64() >= 0 && id.as_int64() < (1 << 30),
        path << ": eos_token_id = " << json::serialize(*eos) << " must be an id or a list of ids");
    result.eos_ids.push_back(int32_t(id.as_int64()));
  }
  if (!result.eos_ids.empty()) result.eod_id = result.eos_ids.front();
}

void read_smelt_parts(const Reader& in, const std::string& path, ModelConfig& c) {
  if (const json::value* norm = in.find("qk_norm"); norm != nullptr && norm->is_string()) {
    c.qk_norm = one_of(std::string(norm->as_string()), path + ": qk_norm", {QkNorm::projection});
  } else {
    c.qk_norm = in.boolean("qk_norm", true) ? QkNorm::head : QkNorm::none;
  }
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

/// Sizes from a stranger keep to the ranges of the configuration, so that no product of them runs
/// over.
void check_ranges(const ModelConfig& model, const std::string& path) {
  RunConfig config;
  config.model = model;
  for (const ConfigKey& key : config_schema()) {
    if (key.section != "model" && key.section != "loop") continue;
    if (key.key == "init_std") continue;  // of no weight's size and of no effect here
    RunConfig scratch;
    const std::string value = key.get(config);
    SMELT_CHECK(IoError, key.set(scratch, value),
                path << ": " << key.key << " = " << value << " must be " << key.allowed);
  }
}

json::value eos_value(const std::vector<int32_t>& ids) {
  if (ids.empty()) return nullptr;
  if (ids.size() == 1) return ids.front();
  return json::array(ids.begin(), ids.end());
}

}  // namespace

std::string print_json(const json::value& value) {
  std::string text;
  print(text, value, 0);
  return text + "\n";
}

std::string write_model_json(const ModelConfig& c, const std::vector<int32_t>& eos_ids,
                             bool selection_bias, const std::string& dtype) {
  const Family family = family_of(c, selection_bias);
  const char* const architectures[] = {"SmeltForCausalLM", "Qwen3MoeForCausalLM",
                                       "OlmoeForCausalLM", "MixtralForCausalLM"};
  json::object o;
  o["architectures"] = json::array{architectures[size_t(family)]};
  o["attention_bias"] = false;
  o["attention_dropout"] = 0.0;
  o["bos_token_id"] = nullptr;
  if (family == Family::olmoe)
    o["clip_qkv"] = c.clip_qkv > 0 ? json::value(c.clip_qkv) : json::value(nullptr);
  if (family == Family::qwen3_moe || family == Family::smelt) o["decoder_sparse_step"] = 1;
  o["dtype"] = dtype;
  o["eos_token_id"] = eos_value(eos_ids);
  o["head_dim"] = c.head_dim;
  o["hidden_act"] = "silu";
  o["hidden_size"] = c.hidden_size;
  o["initializer_range"] = c.init_std;
  o["intermediate_size"] = c.expert_hidden_size;
  o["max_position_embeddings"] = c.max_seq_len;
  if (family == Family::qwen3_moe || family == Family::smelt) {
    o["mlp_only_layers"] = json::array{};
    o["moe_intermediate_size"] = c.expert_hidden_size;
  }
  o["model_type"] = to_text(family);
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
  o["torch_dtype"] = dtype;
  o["use_cache"] = true;
  if (family == Family::qwen3_moe || family == Family::smelt) o["use_sliding_window"] = false;
  o["vocab_size"] = c.vocab_size;
  if (family == Family::smelt) {
    if (c.clip_qkv > 0) o["clip_qkv"] = c.clip_qkv;
    if (c.qk_norm == QkNorm::projection) {
      o["qk_norm"] = to_text(c.qk_norm);
    } else {
      o["qk_norm"] = c.qk_norm == QkNorm::head;
    }
    o["shared_expert_intermediate_size"] = c.shared_expert_hidden_size;
    o["loop"] = json::object{{"start", c.loop.start},          {"layers", c.loop.layers},
                             {"visits", c.loop.visits},        {"scale", c.loop.scale},
                             {"order", to_text(c.loop.order)}, {"kv", to_text(c.loop.kv)}};
  }
  return print_json(o);
}

ModelJson parse_model_json(std::string_view text, const std::string& path) {
  boost::system::error_code error;
  const json::value parsed = parse_json(text, error);
  SMELT_CHECK(IoError, !error, path << ": not JSON: " << error.message());
  SMELT_CHECK(IoError, parsed.is_object(), path << ": must hold a JSON object");
  const Reader in(parsed.as_object(), path);
  ModelJson result;
  result.family = one_of(in.text("model_type"), path + ": model_type",
                         {Family::qwen3_moe, Family::olmoe, Family::mixtral, Family::smelt});
  const FamilyDefaults family = defaults_of(result.family);
  const bool kv_optional = result.family == Family::olmoe || result.family == Family::mixtral;
  ModelConfig& c = result.config;
  c.hidden_size = in.integer("hidden_size");
  c.num_layers = in.integer("num_hidden_layers");
  c.num_heads = in.integer("num_attention_heads");
  SMELT_CHECK(IoError, c.num_heads >= 1,
              path << ": num_attention_heads = " << c.num_heads << " must be at least 1");
  c.num_kv_heads = kv_optional ? in.integer("num_key_value_heads", c.num_heads)
                               : in.integer("num_key_value_heads");
  c.head_dim = in.integer("head_dim", c.hidden_size / c.num_heads);
  read_experts(in, path, c);
  c.top_k = in.integer("num_experts_per_tok");
  c.expert_hidden_size = in.integer(family.expert_width);
  c.vocab_size = in.integer("vocab_size");
  c.max_seq_len = in.integer("max_position_embeddings", family.max_positions);
  c.norm_eps = in.number("rms_norm_eps", family.norm_eps);
  c.init_std = in.number("initializer_range", 0.02);
  c.norm_topk = result.family == Family::mixtral || in.boolean("norm_topk_prob", false);
  c.tie_embeddings = in.boolean("tie_word_embeddings", false);
  c.qk_norm = family.qk_norm;
  if (result.family == Family::olmoe || result.family == Family::smelt)
    c.clip_qkv = in.number("clip_qkv", 0);
  if (result.family == Family::olmoe)
    SMELT_CHECK(IoError, c.head_dim * c.num_heads == c.hidden_size,
                path << ": head_dim = " << c.head_dim
                     << " must be hidden_size / num_attention_heads in an OLMoE model");
  refuse_unknown_parts(in, path, result.family);
  c.rope_theta = read_rope_theta(in, path, family.rope_theta);
  read_eos(in, path, result);
  if (result.family == Family::smelt) read_smelt_parts(in, path, c);
  check_ranges(c, path);
  return result;
}

ModelJson read_model_json(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return parse_model_json(read_text_file(path), path);
}

std::string generation_config_json(const std::vector<int32_t>& eos_ids) {
  json::object o{{"do_sample", false}};
  if (eos_ids.size() == 1) o["eos_token_id"] = eos_ids.front();
  if (eos_ids.size() > 1) o["eos_token_id"] = json::array(eos_ids.begin(), eos_ids.end());
  return print_json(o);
}

}  // namespace smelt
