#include "moe/router.h"

#include "autograd/linear.h"
#include "autograd/routing.h"

namespace smelt {

Router::Router(ParameterStore& store, const std::string& prefix, int64_t hidden_size,
               int64_t num_experts, int64_t top_k, bool normalize, double init_std)
    : weight_(&store.add({.name = prefix + ".weight", .value = {}, .std = init_std, .pieces = {}},
                         {num_experts, hidden_size})),
      top_k_(top_k),
      normalize_(normalize) {}

Routing Router::operator()(const Variable& x, const Tensor& bias) const {
  Routing routing;
  routing.logits = linear_f32(x, weight_->value);
  routing.probs = softmax(routing.logits);
  routing.indices = topk(routing.probs.data(), top_k_, bias);
  routing.weights = topk_weights(routing.probs, routing.indices, normalize_);
  return routing;
}

}  // namespace smelt
