// Reduction of a flat gradient buffer over a group while backward is still running.
//
// Each bucket of the layout is reduce-scattered as soon as all its parameters are final: rank r
// ends up with the sum of part r of the bucket, which is what a sharded optimizer (ZeRO-1) needs.
// Backward finishes the last layers first, so buckets start strictly from the last to the first:
// the order is the same on every rank even where the order of readiness is not. Sums are formed in
// rank order; overlap on and off give the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/bucket_layout.h"
#include "dist/group.h"
#include "tensor/tensor.h"

namespace smelt::dist {

/// Reductions under way at once during backward; each holds a receive buffer of (n - 1) / n of its
/// bucket.
constexpr size_t kMaxReductionsInFlight = 4;

struct GradientReducerOptions {
  bool overlap = true;             // false: all communication happens in finish()
  std::vector<std::string> names;  // of the parameters, for messages; may be empty
};

class GradientReducer {
 public:
  /// Collective over `group`.
  /// @param flat    [layout.numel] f32 or f64 on the CPU, contiguous; padding zero
  /// @param layout  made for group.size() ranks
  /// Throws ShapeError, DTypeError, DeviceError.
  GradientReducer(Tensor flat, const Group& group, BucketLayout layout,
                  GradientReducerOptions options = {});
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// The gradient of this parameter is final for the step: nobody writes to it before finish() has
  /// returned. Never waits for other ranks. Throws CommError naming the parameter when it was ready
  /// before in this step.
  void ready(int64_t parameter);

  /// Moves outstanding reductions on, without waiting; ready() calls it too.
  void poll();

  /// Ends the step: reduces what is left (a parameter that was never ready takes part with what its
  /// range holds, zero if unused) and waits. Afterwards owned_ranges() hold the sums over the
  /// group; the rest of the buffer is unspecified. Collective.
  void finish();

  /// The ranges of the flat buffer that this rank owns, one per bucket.
  const std::vector<Range>& owned_ranges() const { return owned_; }
  const BucketLayout& layout() const { return layout_; }
  /// Reductions that each parameter took part in during the step finished last: 1 for each.
  const std::vector<int>& reductions() const { return reductions_; }
  /// Buckets whose reduction began before finish() in the step finished last.
  int64_t overlapped_buckets() const { return overlapped_buckets_; }

 private:
  struct Progress;  // of the current step

  std::string name_of(int64_t parameter) const;
  void start_next_bucket();

  Tensor flat_;
  Group group_;
  BucketLayout layout_;
  GradientReducerOptions options_;
  std::vector<Range> owned_;
  std::vector<int> reductions_;
  int64_t overlapped_buckets_ = 0;
  std::unique_ptr<Progress> progress_;
};

/// After each rank has updated its owned ranges of `flat` (any dtype): copies every owned range to
/// all ranks. `flat` may have another dtype than the gradients, with the same layout. Collective.
void gather_parameters_(const Tensor& flat, const BucketLayout& layout, const Group& group);

}  // namespace smelt::dist
