// Whole moments of all parameters of this rank, as copies in store order.
#pragma once

#include <vector>

#include "moe/sharded_optimizer.h"

namespace smelt::testing {

/// Collective.
inline std::vector<Tensor> whole_moments(const ShardedOptimizer& optimizer, ParameterStore& store,
                                         ShardedOptimizer::Moment which) {
  ShardedOptimizer::MomentGather gather(optimizer, which);
  std::vector<Tensor> moments;
  for (const Parameter* parameter : store.all()) moments.push_back(gather.of(*parameter).clone());
  return moments;
}

}  // namespace smelt::testing
