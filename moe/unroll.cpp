#include "moe/unroll.h"

#include <map>
#include <string>
#include <utility>

#include "tensor/elementwise.h"

namespace smelt {
namespace {

const std::string kLayers = "model.layers.";

}  // namespace

UnrolledSource unrolled_source(const std::string& name, const ExecutionPlan& plan) {
  if (name.compare(0, kLayers.size(), kLayers) != 0) return {name, 1.0};
  const size_t dot = name.find('.', kLayers.size());
  const size_t step = size_t(std::stoll(name.substr(kLayers.size(), dot - kLayers.size())));
  const ExecutionStep& executed = plan.steps()[step];
  const std::string rest = name.substr(dot);
  const bool last_product = rest.ends_with(".o_proj.weight") || rest.ends_with(".down_proj.weight");
  return {kLayers + std::to_string(executed.layer) + rest,
          last_product ? executed.residual_scale : 1.0};
}

ModelConfig unrolled_config(const ModelConfig& config) {
  const ExecutionPlan plan(config.num_layers, config.loop);
  for (const ExecutionStep& step : plan.steps()) {
    SMELT_CHECK(ConfigError, step.writes_kv,
                "loop.kv = first has no unrolled form: visit "
                    << step.visit + 1 << " of layer " << step.layer
                    << " reads the keys and values of visit 1; only loop.kv = own can be unrolled");
  }
  ModelConfig plain = config;
  plain.num_layers = plan.executed_depth();
  plain.loop = LoopConfig{};
  return plain;
}

void copy_unrolled(MoeTransformer& looped, MoeTransformer& plain) {
  const ModelConfig expected = unrolled_config(looped.config());
  SMELT_CHECK(ConfigError,
              plain.plan().num_layers() == expected.num_layers &&
                  plain.plan().executed_depth() == expected.num_layers,
              "copy_unrolled: the plain model must have "
                  << expected.num_layers << " layers and no loop, it has "
                  << plain.plan().num_layers() << " and runs " << plain.plan().executed_depth());
  SMELT_CHECK(ConfigError, plain.dtype() == looped.dtype(),
              "copy_unrolled: the plain model must be " << name_of(looped.dtype()) << ", it is "
                                                        << name_of(plain.dtype()));
  std::map<std::string, Tensor> sources;
  for (const Parameter* parameter : looped.parameters().all()) {
    for (const TensorPiece& piece : parameter->pieces)
      sources[piece.name] = Parameter::view_piece(parameter->value.data(), piece);
  }
  for (const Parameter* parameter : plain.parameters().all()) {
    for (const TensorPiece& piece : parameter->pieces) {
      const auto [name, factor] = unrolled_source(piece.name, looped.plan());
      const auto found = sources.find(name);
      SMELT_CHECK(ConfigError, found != sources.end() && found->second.shape() == piece.shape,
                  "copy_unrolled: '" << piece.name << "' " << to_string(piece.shape)
                                     << " needs a tensor '" << name
                                     << "' of that shape in the looped model");
      Parameter::view_piece(parameter->value.data(), piece)
          .copy_(factor == 1.0 ? found->second : scale(found->second, factor));
    }
  }
  if (!looped.expert_bias(0).defined()) return;
  plain.enable_expert_bias();
  for (int64_t step = 0; step < expected.num_layers; ++step)
    plain.expert_bias(step).copy_(looped.expert_bias(step));
}

}  // namespace smelt
