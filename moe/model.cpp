#include "moe/model.h"

#include "autograd/elementwise.h"
#include "autograd/layers.h"
#include "autograd/linear.h"
#include "moe/token_dispatch.h"
#include "tensor/loss.h"
#include "tensor/profiler.h"
#include "tensor/routing.h"

namespace smelt {

struct MoeTransformer::Layer {
  RmsNormModule input_norm;
  SelfAttention attention;
  RmsNormModule post_attention_norm;
  Router router;
  Experts experts;
  std::unique_ptr<SwigluMlp> shared_expert;
  std::vector<Variable> parameters;      // of the whole layer
  std::vector<Variable> moe_parameters;  // of experts and shared expert
};

/// What one forward pass shares between its steps; kept by recomputed functions until backward.
struct MoeTransformer::Pass {
  SequenceLayout layout;
  KvCache* cache = nullptr;
  bool training = false;
  BalanceConfig balance;
  StepTotals totals;
  RouterSums* sums = nullptr;
};

namespace {

const ModelConfig& checked(const ModelConfig& c, const dist::World& world) {
  const std::pair<const char*, int64_t> sizes[] = {{"hidden_size", c.hidden_size},
                                                   {"num_layers", c.num_layers},
                                                   {"num_heads", c.num_heads},
                                                   {"num_kv_heads", c.num_kv_heads},
                                                   {"head_dim", c.head_dim},
                                                   {"num_experts", c.num_experts},
                                                   {"top_k", c.top_k},
                                                   {"expert_hidden_size", c.expert_hidden_size},
                                                   {"vocab_size", c.vocab_size},
                                                   {"max_seq_len", c.max_seq_len}};
  for (const auto& [key, value] : sizes) {
    SMELT_CHECK(ConfigError, value >= 1,
                "model." << key << " = " << value << " must be at least 1");
  }
  SMELT_CHECK(ConfigError, c.shared_expert_hidden_size >= 0,
              "model.shared_expert_hidden_size = " << c.shared_expert_hidden_size
                                                   << " must be 0 (none) or positive");
  SMELT_CHECK(ConfigError, c.clip_qkv >= 0,
              "model.clip_qkv = " << c.clip_qkv << " must be 0 (none) or positive");
  SMELT_CHECK(ConfigError, c.num_heads % c.num_kv_heads == 0,
              "model.num_heads = " << c.num_heads << " must be divisible by model.num_kv_heads = "
                                   << c.num_kv_heads);
  SMELT_CHECK(ConfigError, c.head_dim % 2 == 0,
              "model.head_dim = " << c.head_dim << " must be even for rotary positions");
  SMELT_CHECK(
      ConfigError, c.top_k <= c.num_experts,
      "model.top_k = " << c.top_k << " must not exceed model.num_experts = " << c.num_experts);
  SMELT_CHECK(ConfigError, c.num_experts % world.expert_parallel().size() == 0,
              "model.num_experts = " << c.num_experts
                                     << " must be divisible by dist.expert_parallel = "
                                     << world.expert_parallel().size());
  return c;
}

AttentionConfig attention_config(const ModelConfig& c) {
  return {c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim,
          c.qk_norm,     c.norm_eps,  c.init_std,     c.clip_qkv};
}

}  // namespace

MoeTransformer::MoeTransformer(const ModelConfig& config, DType dtype, const dist::World& world,
                               Device device)
    : config_(checked(config, world)),
      plan_(config.num_layers, config.loop),
      world_(world),
      store_(dtype, device),
      embedding_(store_, "model.embed_tokens.weight", config.vocab_size, config.hidden_size,
                 config.init_std),
      layers_([&] {
        std::vector<std::unique_ptr<Layer>> layers;
        const dist::Group& group = world.expert_parallel();
        const int64_t local = config.num_experts / group.size();
        for (int64_t i = 0; i < config.num_layers; ++i) {
          const std::string prefix = "model.layers." + std::to_string(i);
          const size_t first = store_.variables().size();
          auto layer = std::make_unique<Layer>(
              Layer{RmsNormModule(store_, prefix + ".input_layernorm.weight", config.hidden_size,
                                  config.norm_eps),
                    SelfAttention(store_, prefix + ".self_attn", attention_config(config)),
                    RmsNormModule(store_, prefix + ".post_attention_layernorm.weight",
                                  config.hidden_size, config.norm_eps),
                    Router(store_, prefix + ".mlp.gate", config.hidden_size, config.num_experts,
                           config.top_k, config.norm_topk, config.init_std),
                    Experts(store_, prefix + ".mlp.experts", group.rank() * local, local,
                            config.hidden_size, config.expert_hidden_size, config.init_std),
                    nullptr,
                    {},
                    {}});
          if (config.shared_expert_hidden_size > 0) {
            layer->shared_expert = std::make_unique<SwigluMlp>(
                store_, prefix + ".mlp.shared_expert", config.hidden_size,
                config.shared_expert_hidden_size, config.init_std);
          }
          const std::vector<Variable> all = store_.variables();
          const size_t moe_count =
              layer->shared_expert ? 4 : 2;  // experts' two, shared expert's two
          layer->parameters.assign(all.begin() + int64_t(first), all.end());
          layer->moe_parameters.assign(all.end() - int64_t(moe_count), all.end());
          layers.push_back(std::move(layer));
        }
        return layers;
      }()),
      norm_(store_, "model.norm.weight", config.hidden_size, config.norm_eps),
      head_(config.tie_embeddings
                ? nullptr
                : std::make_unique<Linear>(store_, "lm_head.weight", config.hidden_size,
                                           config.vocab_size, config.init_std)),
      rotary_(rotary_table(config.max_seq_len, config.head_dim, config.rope_theta,
                           accumulation_dtype(dtype))),
      biases_(size_t(plan_.executed_depth())),
      load_(plan_.executed_depth(), config.num_experts) {
  for (const ExecutionStep& step : plan_.steps()) {
    step_names_.push_back("layer " + std::to_string(step.layer) + " visit " +
                          std::to_string(step.visit));
  }
}

MoeTransformer::~MoeTransformer() = default;

void MoeTransformer::enable_expert_bias() {
  for (Tensor& bias : biases_) {
    bias = Tensor::zeros({config_.num_experts}, {accumulation_dtype(dtype()), store_.device()});
  }
}

Variable MoeTransformer::feed_forward(size_t step, const Variable& x, const Routing& routing) {
  const Layer& layer = *layers_[size_t(plan_.steps()[step].layer)];
  const auto experts = [this, &layer, step,
                        indices = routing.indices](const std::vector<Variable>& in) {
    const TokenDispatch dispatch(indices, config_.num_experts, world_.expert_parallel());
    load_.add(int64_t(step), dispatch.tokens_per_expert());
    Variable y =
        world_.expert_parallel().size() == 1
            ? layer.experts(in[0], in[1], dispatch.routes())
            : dispatch.combine(layer.experts(dispatch.dispatch(in[0]), dispatch.offsets()), in[1]);
    if (layer.shared_expert) y = add_scaled(y, (*layer.shared_expert)(in[0]));
    return std::vector<Variable>{y};
  };
  const std::vector<Variable> inputs = {x, routing.weights};
  return (recompute_ == Recompute::moe ? checkpoint(experts, inputs, layer.moe_parameters)
                                       : experts(inputs))[0];
}

std::vector<Variable> MoeTransformer::run_step(size_t i, const std::vector<Variable>& inputs,
                                               const Pass& pass) {
  const ProfileScope scope(step_names_[i].c_str());
  const ExecutionStep& step = plan_.steps()[i];
  const Layer& layer = *layers_[size_t(step.layer)];
  Variable x = inputs[0];

  const Variable normed = layer.input_norm(x);
  KeyValue kv;
  if (step.writes_kv) {
    kv = layer.attention.key_value(normed, pass.layout, rotary_);
    if (pass.cache) pass.cache->write(step.kv_slot, kv.k.data(), kv.v.data());
  } else if (!pass.cache) {
    kv = {inputs[1], inputs[2]};
  }
  const KeyValue read = pass.cache ? KeyValue{Variable(pass.cache->keys(step.kv_slot)),
                                              Variable(pass.cache->values(step.kv_slot))}
                                   : kv;
  const std::vector<Variable> attended = layer.post_attention_norm.add(
      x, layer.attention.attend(normed, read, pass.layout, rotary_), step.residual_scale);
  x = attended[0];
  const Variable& normed_again = attended[1];
  const Routing routing = layer.router(normed_again, biases_[i]);
  if (pass.sums) pass.sums->add(routing);
  x = add_scaled(x, feed_forward(i, normed_again, routing), step.residual_scale);

  std::vector<Variable> outputs = {x};
  if (pass.training) {
    std::vector<int64_t> counts;
    if (pass.balance.aux_scope == AuxScope::batch) {
      const Tensor local = expert_counts(routing.indices, config_.num_experts, 1);
      for (const double c : local.to_vector<double>()) counts.push_back(int64_t(c));
    }
    const double share = 1.0 / double(plan_.visits_of(step.layer) * config_.num_layers);
    const BalanceTerms terms = balance_terms(routing, counts, pass.layout.batch, share,
                                             pass.balance, pass.totals, world_.world());
    outputs.insert(outputs.end(), {terms.aux, terms.z});
  }
  if (!pass.cache && kv_read_later(i)) outputs.insert(outputs.end(), {kv.k, kv.v});
  return outputs;
}

bool MoeTransformer::kv_read_later(size_t i) const {
  const auto& steps = plan_.steps();
  if (!steps[i].writes_kv) return false;
  for (size_t j = i + 1; j < steps.size(); ++j) {
    if (!steps[j].writes_kv && steps[j].kv_slot == steps[i].kv_slot) return true;
  }
  return false;
}

std::vector<Variable> MoeTransformer::run(const ModelInput& input, const Pass& pass) {
  const int64_t T = input.layout.batch * input.layout.seq_len;
  check_shape("MoeTransformer", "tokens", input.tokens, {T});
  const ProfileScope outside("embedding and head");
  Variable x = embedding_(input.tokens);
  Variable aux, z;
  std::vector<KeyValue> kv_of_slot(size_t(plan_.kv_slots()));
  for (size_t i = 0; i < plan_.steps().size(); ++i) {
    const ExecutionStep& step = plan_.steps()[i];
    const auto run_this = [this, i, pass](const std::vector<Variable>& in) {
      return run_step(i, in, pass);
    };
    std::vector<Variable> inputs = {x};
    if (!step.writes_kv && !pass.cache) {
      const KeyValue& kv = kv_of_slot[size_t(step.kv_slot)];
      inputs.insert(inputs.end(), {kv.k, kv.v});
    }
    const std::vector<Variable> outputs =
        recompute_ == Recompute::block
            ? checkpoint(run_this, inputs, layers_[size_t(step.layer)]->parameters)
            : run_this(inputs);
    x = outputs[0];
    size_t next = 1;
    if (pass.training) {
      aux = aux.defined() ? add_scaled(aux, outputs[1]) : outputs[1];
      z = z.defined() ? add_scaled(z, outputs[2]) : outputs[2];
      next = 3;
    }
    if (next < outputs.size())
      kv_of_slot[size_t(step.kv_slot)] = {outputs[next], outputs[next + 1]};
  }
  return {norm_(x), aux, z};
}

Variable MoeTransformer::hidden(const ModelInput& input, KvCache* cache, RouterSums* sums) {
  SMELT_CHECK(Error, cache == nullptr || !grad_enabled(),
              "MoeTransformer: a KV cache cannot be used while gradients are recorded");
  return run(input, {.layout = input.layout,
                     .cache = cache,
                     .training = false,
                     .balance = {},
                     .totals = {},
                     .sums = sums})[0];
}

PassLoss MoeTransformer::loss(const ModelInput& input, const BalanceConfig& balance,
                              const StepTotals& totals) {
  const std::vector<Variable> out = run(input, {.layout = input.layout,
                                                .cache = nullptr,
                                                .training = true,
                                                .balance = balance,
                                                .totals = totals,
                                                .sums = nullptr});
  const ProfileScope scope("embedding and head");
  return {linear_cross_entropy(out[0], head_weight(), input.targets), out[1], out[2]};
}

Tensor MoeTransformer::token_losses(const ModelInput& input, RouterSums* sums) {
  const NoGrad no_grad;
  return linear_cross_entropy(hidden(input, nullptr, sums).data(), head_weight().data(),
                              input.targets, false)
      .losses;
}

Variable MoeTransformer::logits(const Variable& hidden) const {
  return linear_f32(hidden, head_weight());
}

}  // namespace smelt
