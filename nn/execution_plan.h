// What [loop] of a configuration says about which layers run more than once.
#pragma once

#include <cstdint>

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

}  // namespace smelt
