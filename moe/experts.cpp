#include "moe/experts.h"

#include "autograd/layers.h"
#include "autograd/linear.h"

namespace smelt {

Experts::Experts(ParameterStore& store, const std::string& prefix, int64_t first, int64_t count,
                 int64_t hidden_size, int64_t expert_hidden_size, double init_std) {
  const int64_t H = hidden_size, F = expert_hidden_size;
  Parameter gate_up{
      .name = prefix + ".gate_up_proj", .value = {}, .std = init_std, .expert = true, .pieces = {}};
  Parameter down{
      .name = prefix + ".down_proj", .value = {}, .std = init_std, .expert = true, .pieces = {}};
  for (int64_t e = 0; e < count; ++e) {
    const std::string expert = prefix + "." + std::to_string(first + e);
    gate_up.pieces.push_back({expert + ".gate_proj.weight", 2 * e * F * H, {F, H}});
    gate_up.pieces.push_back({expert + ".up_proj.weight", (2 * e + 1) * F * H, {F, H}});
    down.pieces.push_back({expert + ".down_proj.weight", e * H * F, {H, F}});
  }
  gate_up_ = &store.add(std::move(gate_up), {count, 2 * F, H});
  down_ = &store.add(std::move(down), {count, H, F});
}

Variable Experts::operator()(const Variable& rows, const std::vector<int64_t>& offsets) const {
  return grouped_linear(swiglu(grouped_linear(rows, gate_up_->value, offsets)), down_->value,
                        offsets);
}

Variable Experts::operator()(const Variable& x, const Variable& weights,
                             const Routes& routes) const {
  return routed_swiglu_linear(routed_linear(x, gate_up_->value, routes), down_->value, weights,
                              routes);
}

}  // namespace smelt
