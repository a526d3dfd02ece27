#include "nn/execution_plan.h"

#include <cmath>

#include "tensor/error.h"

namespace smelt {

ExecutionPlan::ExecutionPlan(int64_t num_layers, const LoopConfig& loop) : num_layers_(num_layers) {
  SMELT_CHECK(ConfigError, num_layers >= 1,
              "model.num_layers = " << num_layers << " must be at least 1");
  SMELT_CHECK(ConfigError, loop.layers >= 0 && loop.layers <= num_layers,
              "loop.layers = " << loop.layers
                               << " must be between 0 and model.num_layers = " << num_layers);
  SMELT_CHECK(ConfigError, loop.visits >= 1,
              "loop.visits = " << loop.visits << " must be at least 1");
  SMELT_CHECK(ConfigError, loop.start >= -1,
              "loop.start = " << loop.start << " must be -1 (centred) or a layer from 0");
  SMELT_CHECK(ConfigError, std::isfinite(loop.scale) && loop.scale >= 0,
              "loop.scale = " << loop.scale << " must be 0 (1 / visits) or positive");
  SMELT_CHECK(
      ConfigError, loop.layers == 0 || loop.start <= num_layers - loop.layers,
      "loop.start + loop.layers = " << loop.start << " + " << loop.layers
                                    << " must not exceed model.num_layers = " << num_layers);
  if (loop.layers > 0) {
    span_begin_ = loop.start < 0 ? (num_layers - loop.layers) / 2 : loop.start;
    span_end_ = span_begin_ + loop.layers;
    visits_ = loop.visits;
  }
  const double scale = loop.scale > 0 ? loop.scale : 1.0 / double(visits_);

  std::vector<int64_t> first_slot(size_t(num_layers), 0);  // slot of each layer's visit 0
  const auto add = [&](int64_t layer, int64_t visit) {
    const bool writes = visit == 0 || loop.kv == LoopKv::own;
    ExecutionStep step{layer, visit, looped(layer) ? scale : 1.0, first_slot[size_t(layer)],
                       writes};
    if (writes) step.kv_slot = kv_slots_++;
    if (visit == 0) first_slot[size_t(layer)] = step.kv_slot;
    steps_.push_back(step);
  };
  for (int64_t layer = 0; layer < span_begin_; ++layer) add(layer, 0);
  if (loop.order == LoopOrder::span) {
    for (int64_t visit = 0; visit < visits_; ++visit) {
      for (int64_t layer = span_begin_; layer < span_end_; ++layer) add(layer, visit);
    }
  } else {
    for (int64_t layer = span_begin_; layer < span_end_; ++layer) {
      for (int64_t visit = 0; visit < visits_; ++visit) add(layer, visit);
    }
  }
  for (int64_t layer = span_end_; layer < num_layers; ++layer) add(layer, 0);
}

int64_t ExecutionPlan::step_of(int64_t layer, int64_t visit) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].layer == layer && steps_[i].visit == visit) return int64_t(i);
  }
  SMELT_CHECK(ConfigError, false, "the plan has no visit " << visit << " of layer " << layer);
  return -1;
}

}  // namespace smelt
