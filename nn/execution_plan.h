// The loop operator: which layers run, in which order, how often. Prelude layers run once, the span
// `visits` times, the coda once (SMELT, arXiv 2609.01343; scaled residual updates inside the span).
//
// The ExecutionPlan is the one list that forward, backward, the KV cache, cost accounting, probes
// and the unrolled export walk. Nothing else derives what is looped.
#pragma once

#include <cstdint>
#include <vector>

namespace smelt {

/// span: the whole span is repeated as a block. layer: each layer is repeated in place.
enum class LoopOrder { span, layer };
/// own: each visit stores its keys and values. first: later visits read those of visit 1.
enum class LoopKv { own, first };

struct LoopConfig {
  int64_t start = -1;  // first layer of the span, 0-based; -1: centred
  int64_t layers = 0;  // layers in the span; 0: no loop
  int64_t visits = 1;
  double scale = 0;  // factor on residual updates inside the span; 0: 1 / visits
  LoopOrder order = LoopOrder::span;
  LoopKv kv = LoopKv::own;
};

/// One execution of one layer.
struct ExecutionStep {
  int64_t layer = 0;          // physical layer, 0-based
  int64_t visit = 0;          // 0-based
  double residual_scale = 1;  // x + residual_scale * f(x), for both sub-layers
  int64_t kv_slot = 0;        // cache slot whose keys and values this step attends to
  bool writes_kv = true;      // false: reads what an earlier visit stored (LoopKv::first)
  bool operator==(const ExecutionStep&) const = default;
};

class ExecutionPlan {
 public:
  /// @param num_layers physical layers, >= 1
  /// A centred span starts at floor((num_layers - layers) / 2): an odd rest goes to the coda.
  /// @throws ConfigError naming the key, its value and what is allowed.
  ExecutionPlan(int64_t num_layers, const LoopConfig& loop);

  const std::vector<ExecutionStep>& steps() const { return steps_; }
  int64_t num_layers() const { return num_layers_; }
  /// Executed (effective) depth: number of steps, num_layers + (visits - 1) * layers.
  int64_t executed_depth() const { return int64_t(steps_.size()); }
  /// Slots that a KV cache needs: one per step that writes.
  int64_t kv_slots() const { return kv_slots_; }
  /// Times a layer runs: `visits` in the span, else 1.
  int64_t visits_of(int64_t layer) const { return looped(layer) ? visits_ : 1; }
  /// Index of (layer, visit) in steps().
  int64_t step_of(int64_t layer, int64_t visit) const;
  /// Whether a layer lies in the span [span_begin, span_end). A span with one visit counts too.
  bool looped(int64_t layer) const { return layer >= span_begin_ && layer < span_end_; }
  int64_t span_begin() const { return span_begin_; }
  int64_t span_end() const { return span_end_; }
  int64_t visits() const { return visits_; }

 private:
  int64_t num_layers_;
  int64_t span_begin_ = 0, span_end_ = 0, visits_ = 1;
  int64_t kv_slots_ = 0;
  std::vector<ExecutionStep> steps_;
};

}  // namespace smelt
