#include "moe/layout_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "dist/gradient_reducer.h"
#include "moe/sharded_optimizer.h"
#include "nn/execution_plan.h"
#include "tensor/allocator.h"
#include "tensor/error.h"

namespace smelt {
namespace {

/// Elements of the parameters that all ranks share, in the order of the model's store.
std::vector<int64_t> dense_sizes(const ModelConfig& c) {
  const int64_t H = c.hidden_size, Q = c.num_heads * c.head_dim, C = c.num_kv_heads * c.head_dim;
  std::vector<int64_t> sizes = {c.vocab_size * H};
  const auto add = [&](std::initializer_list<int64_t> more) { sizes.insert(sizes.end(), more); };
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    add({H, Q * H, 2 * C * H, H * Q});  // norm, q, k and v, o
    if (c.qk_norm == QkNorm::head) add({c.head_dim, c.head_dim});
    if (c.qk_norm == QkNorm::projection) add({Q, C});
    add({H, c.num_experts * H});  // norm, router
    if (const int64_t Fs = c.shared_expert_hidden_size; Fs > 0) add({2 * Fs * H, H * Fs});
  }
  add({H});
  if (!c.tie_embeddings) add({c.vocab_size * H});
  return sizes;
}

/// The same of the experts of one rank.
std::vector<int64_t> expert_sizes(const ModelConfig& c, int64_t local_experts) {
  const int64_t expert = c.hidden_size * c.expert_hidden_size;
  std::vector<int64_t> sizes;
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    sizes.push_back(local_experts * 2 * expert);  // gate, up
    sizes.push_back(local_experts * expert);      // down
  }
  return sizes;
}

int64_t block(int64_t elements, DType dtype) {
  return int64_t(block_bytes(size_t(elements * size_of(dtype))));
}

/// Both moments of what one rank owns: a tensor for each parameter within each bucket's part.
int64_t moment_bytes(const dist::BucketLayout& layout, int rank, DType dtype) {
  int64_t bytes = 0;
  const std::vector<dist::Range> owned = layout.owned_ranges(rank);
  for (size_t p = 0; p < layout.parameters.size(); ++p) {
    const dist::Range& whole = layout.parameters[p];
    const dist::Range& mine = owned[size_t(layout.bucket_of[p])];
    const int64_t size = std::min(mine.end, whole.end) - std::max(mine.begin, whole.begin);
    if (size > 0) bytes += 2 * block(size, dtype);
  }
  return bytes;
}

/// Adds the flat buffers of one partition, shared by `group` ranks.
void add_partition(LayoutPlan& plan, const std::vector<int64_t>& sizes, int64_t group) {
  const DType wide = accumulation_dtype(plan.sizes.dtype);
  const dist::BucketLayout layout = dist::plan_buckets(sizes, int(group), kBucketBytes, wide);
  LayoutMemory& memory = plan.memory;
  memory.masters += block(layout.numel, wide);
  memory.gradients += block(layout.numel, wide);
  if (plan.sizes.dtype != wide) memory.compute += block(layout.numel, plan.sizes.dtype);
  int64_t most = 0;
  for (int rank = 0; rank < int(group); ++rank)
    most = std::max(most, moment_bytes(layout, rank, wide));
  memory.moments += most;

  if (group == 1) return;
  // Moments are gathered a bucket at a time and the last two are kept.
  std::vector<int64_t> gathered;
  for (const dist::Range& bucket : layout.buckets) gathered.push_back(block(bucket.size(), wide));
  std::sort(gathered.rbegin(), gathered.rend());
  for (size_t i = 0; i < std::min<size_t>(gathered.size(), 2); ++i) memory.saving += gathered[i];
  // Buckets are reduced from the last to the first, so those under way follow each other.
  int64_t largest = 0, window = 0;
  std::vector<int64_t> staging;
  for (const dist::Range& bucket : layout.buckets) {
    staging.push_back(block(bucket.size() / group * (group - 1), wide));
    window += staging.back();
    if (staging.size() > dist::kMaxReductionsInFlight)
      window -= staging[staging.size() - 1 - dist::kMaxReductionsInFlight];
    largest = std::max(largest, window);
  }
  memory.reduction_buffers += largest;
  const double sent = double(layout.numel * size_of(wide)) * double(group - 1) / double(group);
  plan.communication.reduce_scatter += sent;
  plan.communication.all_gather += sent;
}

}  // namespace

int64_t LayoutMemory::total() const {
  return state() + std::max(inputs + activations_peak + reduction_buffers, saving);
}

LayoutPlan plan_layout(const ModelConfig& config, const TrainingSizes& sizes, const Layout& layout,
                       double bandwidth) {
  const int64_t R = layout.ranks, E = layout.expert_parallel;
  SMELT_CHECK(ConfigError, R >= 1, "layout: ranks = " << R << " must be at least 1");
  SMELT_CHECK(ConfigError, E >= 1 && R % E == 0,
              "dist.expert_parallel = " << E << " must divide the number of ranks, " << R);
  SMELT_CHECK(ConfigError, config.num_experts % E == 0,
              "model.num_experts = " << config.num_experts
                                     << " must be divisible by dist.expert_parallel = " << E);
  SMELT_CHECK(ConfigError, sizes.micro_batch >= 1 && sizes.seq_len >= 1,
              "train.micro_batch = " << sizes.micro_batch << " and train.seq_len = "
                                     << sizes.seq_len << " must be at least 1");
  const int64_t pass = R * sizes.micro_batch;
  SMELT_CHECK(ConfigError, sizes.global_batch >= 1 && sizes.global_batch % pass == 0,
              "train.global_batch = " << sizes.global_batch
                                      << " must be a multiple of ranks x train.micro_batch = " << R
                                      << " x " << sizes.micro_batch << " = " << pass);
  SMELT_CHECK(ConfigError, bandwidth > 0,
              "layout: bandwidth = " << bandwidth << " must be positive");

  LayoutPlan plan;
  plan.layout = layout;
  plan.sizes = sizes;
  const std::vector<int64_t> dense = dense_sizes(config);
  const std::vector<int64_t> experts = expert_sizes(config, config.num_experts / E);
  plan.dense_parameters = std::accumulate(dense.begin(), dense.end(), int64_t{0});
  plan.expert_parameters = std::accumulate(experts.begin(), experts.end(), int64_t{0});
  add_partition(plan, dense, R);
  add_partition(plan, experts, R / E);

  const MicroBatch batch{.sequences = sizes.micro_batch,
                         .seq_len = sizes.seq_len,
                         .dtype = sizes.dtype,
                         .recompute = sizes.recompute,
                         .expert_parallel = E};
  const ActivationMemory activations = activation_memory(config, batch);
  plan.memory.activations_kept = activations.kept.total();
  plan.memory.activations_peak = activations.peak();
  const int64_t passes = sizes.global_batch / pass;
  plan.memory.inputs = passes * 5 * block(batch.tokens(), DType::i32);
  plan.memory.tables =
      2 * block(config.max_seq_len * config.head_dim / 2, accumulation_dtype(sizes.dtype));

  const int64_t depth = ExecutionPlan(config.num_layers, config.loop).executed_depth();
  const double exchanges = double(depth) * (sizes.recompute == Recompute::none ? 4 : 6);
  const double rows = double(passes * batch.tokens() * config.top_k);
  plan.communication.all_to_all = exchanges * rows *
                                  double(config.hidden_size * size_of(sizes.dtype)) *
                                  double(E - 1) / double(E);
  plan.communication_seconds = plan.communication.total() / bandwidth;
  return plan;
}

std::vector<int64_t> powers_of_two(int64_t limit) {
  std::vector<int64_t> result;
  for (int64_t n = 1; n <= limit; n *= 2) result.push_back(n);
  return result;
}

LayoutPlan smallest_layout(const ModelConfig& config, const TrainingSizes& sizes,
                           const std::vector<int64_t>& candidates, int64_t device_memory,
                           double bandwidth) {
  std::vector<int64_t> ranks = candidates;
  std::sort(ranks.begin(), ranks.end());
  std::optional<LayoutPlan> closest;  // of those that do not fit
  for (const int64_t R : ranks) {
    for (const Recompute recompute : {Recompute::none, Recompute::moe, Recompute::block}) {
      if (recompute < sizes.recompute) continue;
      TrainingSizes tried = sizes;
      tried.recompute = recompute;
      for (const int64_t micro_batch : {sizes.micro_batch, int64_t{1}}) {
        tried.micro_batch = micro_batch;
        if (sizes.global_batch % (R * micro_batch) != 0) continue;
        std::optional<LayoutPlan> best;
        for (int64_t E = 1; E <= R; ++E) {
          if (R % E != 0 || config.num_experts % E != 0) continue;
          const LayoutPlan plan = plan_layout(config, tried, {R, E}, bandwidth);
          if (plan.memory.total() > device_memory) {
            if (!closest || plan.memory.total() < closest->memory.total()) closest = plan;
          } else if (!best || plan.communication_seconds < best->communication_seconds) {
            best = plan;
          }
        }
        if (best) return *best;
      }
    }
  }
  SMELT_CHECK(ConfigError, closest,
              "train.global_batch = " << sizes.global_batch
                                      << " is not a multiple of any number of ranks to be tried");
  const LayoutPlan& near = *closest;
  SMELT_CHECK(
      ConfigError, false,
      "no layout fits " << double(device_memory) / 1e9 << " GB per rank: " << near.layout.ranks
                        << " ranks with dist.expert_parallel = " << near.layout.expert_parallel
                        << ", train.recompute = " << to_text(near.sizes.recompute)
                        << " and train.micro_batch = " << near.sizes.micro_batch
                        << " come closest with " << double(near.memory.total()) / 1e9
                        << " GB; allow more ranks");
  return near;
}

}  // namespace smelt
