// This rank's experts of one layer: SwiGLU feed-forwards as one grouped product per projection.
#pragma once

#include <string>
#include <vector>

#include "autograd/experts.h"
#include "nn/parameter.h"

namespace smelt {

class Experts {
 public:
  /// Experts [first, first + count) of the layer. Checkpoint tensors are
  /// `prefix`.{e}.{gate,up,down}_proj.weight with the global expert index e.
  Experts(ParameterStore& store, const std::string& prefix, int64_t first, int64_t count,
          int64_t hidden_size, int64_t expert_hidden_size, double init_std);

  /// rows [R, H] sorted by expert, offsets [count + 1] -> [R, H]; experts may have no rows.
  Variable operator()(const Variable& rows, const std::vector<int64_t>& offsets) const;
  /// The same from the tokens x [T, H] and back, y[t] = sum_k weights[t, k] expert(x[t]), where all
  /// experts are on this rank: routed rows are not kept for backward. weights [T, K] -> [T, H].
  Variable operator()(const Variable& x, const Variable& weights, const Routes& routes) const;

 private:
  Parameter* gate_up_;  // [count, 2F, H]
  Parameter* down_;     // [count, H, F]
};

}  // namespace smelt
