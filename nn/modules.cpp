#include "nn/modules.h"

#include "autograd/layers.h"
#include "autograd/linear.h"

namespace smelt {

Linear::Linear(ParameterStore& store, const std::string& name, int64_t in, int64_t out, double std)
    : Linear(store, name, in, {{name, out}}, std) {}

Linear::Linear(ParameterStore& store, const std::string& name, int64_t in,
               const std::vector<std::pair<std::string, int64_t>>& parts, double std) {
  Parameter parameter{.name = name, .value = {}, .std = std, .pieces = {}};
  int64_t out = 0;
  for (const auto& [part, rows] : parts) {
    parameter.pieces.push_back({part, out * in, {rows, in}});
    out += rows;
  }
  weight_ = &store.add(std::move(parameter), {out, in});
}

Variable Linear::operator()(const Variable& x) const { return linear(x, weight_->value); }

Embedding::Embedding(ParameterStore& store, const std::string& name, int64_t vocab_size,
                     int64_t hidden_size, double std)
    : table_(&store.add({.name = name, .value = {}, .std = std, .decay = false, .pieces = {}},
                        {vocab_size, hidden_size})) {}

Variable Embedding::operator()(const Tensor& ids) const { return embedding(table_->value, ids); }

RmsNormModule::RmsNormModule(ParameterStore& store, const std::string& name, int64_t size,
                             double eps)
    : weight_(&store.add(
          {.name = name, .value = {}, .init = Init::ones, .decay = false, .pieces = {}}, {size})),
      eps_(eps) {}

Variable RmsNormModule::operator()(const Variable& x) const {
  return rms_norm(x, weight_->value, eps_);
}

std::vector<Variable> RmsNormModule::add(const Variable& x, const Variable& branch,
                                         double alpha) const {
  return add_rms_norm(x, branch, alpha, weight_->value, eps_);
}

SwigluMlp::SwigluMlp(ParameterStore& store, const std::string& prefix, int64_t hidden_size,
                     int64_t ffn_hidden_size, double std)
    : gate_up_(store, prefix + ".gate_up_proj", hidden_size,
               {{prefix + ".gate_proj.weight", ffn_hidden_size},
                {prefix + ".up_proj.weight", ffn_hidden_size}},
               std),
      down_(store, prefix + ".down_proj.weight", ffn_hidden_size, hidden_size, std) {}

Variable SwigluMlp::operator()(const Variable& x) const { return down_(swiglu(gate_up_(x))); }

}  // namespace smelt
