#include "dist/gradient_reducer.h"

#include <list>
#include <utility>

#include "dist/exchange.h"
#include "tensor/error.h"
#include "tensor/profiler.h"

namespace smelt::dist {

namespace {

/// Bounds of the group's parts of a bucket.
std::vector<int64_t> part_bounds(const Range& bucket, int group_size) {
  std::vector<int64_t> bounds;
  const int64_t part = bucket.size() / group_size;
  for (int r = 0; r <= group_size; ++r) bounds.push_back(bucket.begin + r * part);
  return bounds;
}

void check_flat(const char* op, const Tensor& flat, const BucketLayout& layout,
                const Group& group) {
  check_defined(op, "flat", flat);
  SMELT_CHECK(DeviceError, flat.device().is_cpu(),
              op << ": the flat buffer must be on the CPU, it is on " << flat.device());
  SMELT_CHECK(ShapeError, flat.rank() == 1 && flat.dim(0) == layout.numel && flat.is_contiguous(),
              op << ": the flat buffer must be a contiguous [" << layout.numel << "], it is "
                 << to_string(flat.shape()));
  SMELT_CHECK(ShapeError, layout.group_size == group.size(),
              op << ": the layout was made for " << layout.group_size << " ranks, the group has "
                 << group.size());
}

}  // namespace

struct GradientReducer::Progress {
  explicit Progress(const BucketLayout& layout)
      : is_ready(layout.parameters.size()),
        missing(layout.buckets.size()),
        reductions(layout.parameters.size()),
        not_started(int64_t(layout.buckets.size())) {
    for (const int64_t bucket : layout.bucket_of) ++missing[size_t(bucket)];
  }

  std::vector<bool> is_ready;          // by parameter
  std::vector<int64_t> missing;        // parameters that are not ready yet, by bucket
  std::vector<int> reductions;         // by parameter
  int64_t not_started;                 // buckets [0, not_started) wait for their turn
  std::list<PartReduction> in_flight;  // oldest first
};

GradientReducer::GradientReducer(Tensor flat, const Group& group, BucketLayout layout,
                                 GradientReducerOptions options)
    : flat_(std::move(flat)), layout_(std::move(layout)), options_(std::move(options)) {
  check_flat("GradientReducer", flat_, layout_, group);
  SMELT_CHECK(DTypeError, flat_.dtype() == DType::f32 || flat_.dtype() == DType::f64,
              "GradientReducer: gradients must be f32 or f64, not " << flat_.dtype());
  SMELT_CHECK(ShapeError,
              options_.names.empty() || options_.names.size() == layout_.parameters.size(),
              "GradientReducer: " << options_.names.size() << " names for "
                                  << layout_.parameters.size() << " parameters");
  // Buckets travel while other collectives of the group run: they need messages of their own.
  group_ = group.duplicate();
  owned_ = layout_.owned_ranges(group_.rank());
  reductions_.resize(layout_.parameters.size());
  progress_ = std::make_unique<Progress>(layout_);
}

GradientReducer::~GradientReducer() = default;

std::string GradientReducer::name_of(int64_t parameter) const {
  if (options_.names.empty()) return "parameter " + std::to_string(parameter);
  return options_.names[size_t(parameter)];
}

void GradientReducer::ready(int64_t parameter) {
  SMELT_CHECK(
      CommError, parameter >= 0 && parameter < int64_t(layout_.parameters.size()),
      "GradientReducer: no parameter " << parameter << ", there are " << layout_.parameters.size());
  SMELT_CHECK(CommError, !progress_->is_ready[size_t(parameter)],
              "GradientReducer: the gradient of " << name_of(parameter)
                                                  << " is ready a second time in one step");
  progress_->is_ready[size_t(parameter)] = true;
  --progress_->missing[size_t(layout_.bucket_of[size_t(parameter)])];
  if (options_.overlap) poll();
}

void GradientReducer::start_next_bucket() {
  const int64_t bucket = --progress_->not_started;
  for (size_t p = 0; p < layout_.parameters.size(); ++p) {
    if (layout_.bucket_of[p] == bucket) ++progress_->reductions[p];
  }
  progress_->in_flight.emplace_back(
      flat_, part_bounds(layout_.buckets[size_t(bucket)], group_.size()), group_);
}

void GradientReducer::poll() {
  // Waiting here could deadlock: the rank that a bucket waits for may itself wait for this one in
  // another collective of backward. So buckets beyond the limit are left for a later call.
  auto& in_flight = progress_->in_flight;
  while (!in_flight.empty() && in_flight.front().test()) in_flight.pop_front();
  if (!options_.overlap) return;
  while (in_flight.size() < kMaxReductionsInFlight && progress_->not_started > 0 &&
         progress_->missing[size_t(progress_->not_started) - 1] == 0) {
    start_next_bucket();
  }
}

void GradientReducer::finish() {
  const ProfiledOperation profiled("reduce_gradients", double(flat_.bytes()));
  overlapped_buckets_ = int64_t(layout_.buckets.size()) - progress_->not_started;
  auto& in_flight = progress_->in_flight;
  while (progress_->not_started > 0 || !in_flight.empty()) {
    while (in_flight.size() < kMaxReductionsInFlight && progress_->not_started > 0)
      start_next_bucket();
    in_flight.front().wait();
    in_flight.pop_front();
  }
  reductions_ = std::move(progress_->reductions);
  progress_ = std::make_unique<Progress>(layout_);
}

void gather_parameters_(const Tensor& flat, const BucketLayout& layout, const Group& group) {
  check_flat("gather_parameters_", flat, layout, group);
  const ProfiledOperation profiled("gather_parameters", double(flat.bytes()));
  Exchange exchange(group);
  for (const Range& bucket : layout.buckets) {
    post_part_gather(flat, part_bounds(bucket, group.size()), group, exchange);
  }
  exchange.wait();
}

}  // namespace smelt::dist
