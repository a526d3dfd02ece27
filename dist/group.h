// Groups of ranks, and the layout world = data_parallel x expert_parallel.
#pragma once

#include <cstdint>
#include <memory>

#include "dist/chunks.h"

namespace smelt::dist {

/// A set of ranks that communicate with each other; a copy is another handle to the same set.
/// A group of one rank never calls MPI.
class Group {
 public:
  /// This process alone; needs no Environment.
  Group();

  int rank() const;
  int size() const;

  /// Longest message in elements (see chunks.h).
  int64_t chunk_elements() const { return chunk_elements_; }
  /// Handle to the same ranks whose messages are cut at `elements` (tests use small values). All
  /// ranks must use the same value.
  Group with_chunk_elements(int64_t elements) const;

  /// Same ranks, separate messages: traffic on one cannot be mistaken for that on the other.
  /// Collective.
  Group duplicate() const;
  /// The ranks that pass the same `color` >= 0, in the order of their ranks here. Collective.
  Group split(int color) const;

  /// MPI's Fortran handle of the communicator, by which dist/*.cpp find it.
  int handle() const;

 private:
  friend class World;
  struct State;
  explicit Group(std::shared_ptr<const State> state);

  std::shared_ptr<const State> state_;
  int64_t chunk_elements_ = kDefaultChunkElements;
};

/// The groups of a run: rank r has expert-parallel index r % expert_parallel and data index
/// r / expert_parallel.
class World {
 public:
  /// Collective over all ranks of the Environment (a world of one without it). Throws ConfigError
  /// on every rank unless expert_parallel >= 1 divides the number of ranks.
  explicit World(int expert_parallel, int64_t chunk_elements = kDefaultChunkElements);

  /// This process alone, also inside a run of many ranks: the serial side of a comparison. Local.
  static World single() { return World(); }

  /// All ranks: attention, norms, router and embeddings are reduced here.
  const Group& world() const { return world_; }
  /// Consecutive ranks among which the experts are split.
  const Group& expert_parallel() const { return expert_parallel_; }
  /// The ranks that hold the same experts as this one.
  const Group& expert_data() const { return expert_data_; }

 private:
  World() = default;

  Group world_;
  Group expert_parallel_;
  Group expert_data_;
};

}  // namespace smelt::dist
