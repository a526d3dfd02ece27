// What a layout of ranks costs each rank, in closed form: bytes of memory, bytes of communication
// per optimizer step and the time these take; and the smallest layout that fits a memory.
//
// R ranks, E of them in an expert-parallel group, n = R / E ranks with the same experts. The dense
// parameters (P_d elements) are shared by all R ranks, a rank's P_x = experts / E by n. In flat
// buffers, so with the padding of dist::plan_buckets, and in the allocator's size classes:
//   masters    4 (P_d + P_x)               every rank holds all values it computes with
//   compute    2 (P_d + P_x) for bf16, else 0
//   gradients  4 (P_d + P_x)
//   moments    8 (P_d / R + P_x / n)       ZeRO-1
// (f64 models: 8 for 4.) Communication, bytes that one rank sends in one step; it receives as many:
//   all_to_all      T k H b (E - 1) / E for each exchange of rows. A step of the plan exchanges
//                   twice forward (dispatch, combine), twice backward, and twice more where the
//                   experts are recomputed; T tokens of the rank in the whole optimizer step, b
//                   bytes of the compute dtype. The load is taken as even.
//   reduce_scatter  4 (P_d (R - 1) / R + P_x (n - 1) / n)
//   all_gather      the same: f32 masters are gathered
// A few scalars and row counts per pass are left out.
#pragma once

#include <vector>

#include "moe/activation_memory.h"

namespace smelt {

/// The [train] values that memory and communication depend on.
struct TrainingSizes {
  int64_t seq_len = 0;
  int64_t micro_batch = 1;   // sequences in one pass of one rank
  int64_t global_batch = 1;  // sequences of one optimizer step, over all ranks
  DType dtype = DType::f32;
  Recompute recompute = Recompute::none;
};

struct Layout {
  int64_t ranks = 1;
  int64_t expert_parallel = 1;
  bool operator==(const Layout&) const = default;
};

/// Bytes on the rank that holds most.
struct LayoutMemory {
  int64_t masters = 0, compute = 0, gradients = 0, moments = 0;
  int64_t tables = 0;             // cosines and sines of the rotary positions
  int64_t inputs = 0;             // ids, targets, positions and ranges of a step's micro-batches
  int64_t activations_kept = 0;   // between the passes of a micro-batch
  int64_t activations_peak = 0;   // highest on the way
  int64_t reduction_buffers = 0;  // received parts of the gradient buckets under way
  int64_t saving = 0;             // buckets of a moment, gathered for a checkpoint

  int64_t state() const { return masters + compute + gradients + moments + tables; }
  /// The larger of a training step's peak and what writing a checkpoint needs. The former is an
  /// upper bound: reductions start while activations are already shrinking.
  int64_t total() const;
};

/// Bytes that each rank sends per optimizer step.
struct LayoutCommunication {
  double all_to_all = 0, reduce_scatter = 0, all_gather = 0;
  double total() const { return all_to_all + reduce_scatter + all_gather; }
};

struct LayoutPlan {
  Layout layout;
  TrainingSizes sizes;
  int64_t dense_parameters = 0;   // on every rank
  int64_t expert_parameters = 0;  // of one rank
  LayoutMemory memory;
  LayoutCommunication communication;
  double communication_seconds = 0;  // total / bandwidth: nothing overlapped
};

/// @param bandwidth bytes per second that a rank sends while it receives as many, > 0
/// @throws ConfigError unless expert_parallel divides ranks and num_experts, and ranks *
/// micro_batch divides global_batch.
LayoutPlan plan_layout(const ModelConfig& config, const TrainingSizes& sizes, const Layout& layout,
                       double bandwidth);

/// 1, 2, 4, ... up to `limit`.
std::vector<int64_t> powers_of_two(int64_t limit);

/// The best layout whose total() is at most `device_memory` bytes: the fewest ranks, then the least
/// recomputation (none, moe, block; `sizes.recompute` is the least allowed), then the given
/// micro_batch rather than 1, then the least communication time, then the smallest expert_parallel.
/// A micro_batch of 1 is tried where the given one does not fit or ranks * micro_batch does not
/// divide global_batch.
/// @param candidates numbers of ranks to try, in any order
/// @throws ConfigError when nothing fits, with the layout that comes closest and what it needs.
LayoutPlan smallest_layout(const ModelConfig& config, const TrainingSizes& sizes,
                           const std::vector<int64_t>& candidates, int64_t device_memory,
                           double bandwidth);

}  // namespace smelt
