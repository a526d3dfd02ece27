// Non-blocking messages between the ranks of a group, cut into chunks: what the collectives on
// Tensors and the gradient reducer are made of.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/group.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace smelt::dist {

/// Messages under way. Memory that was passed in must stay valid until test() returned true or
/// wait() returned. Messages between two ranks arrive in the order in which they were posted.
class Exchange {
 public:
  explicit Exchange(const Group& group);
  ~Exchange();
  Exchange(Exchange&&) noexcept;
  Exchange& operator=(Exchange&&) noexcept;

  /// Both post `count` elements of `dtype`; the rank must be another one.
  void send(const void* data, int64_t count, DType dtype, int to);
  void receive(void* data, int64_t count, DType dtype, int from);

  /// Whether all messages have completed. Throws CommError when MPI failed or a message was shorter
  /// or longer than its receiver expected.
  bool test();
  void wait();

 private:
  struct Requests;
  void check_lengths();

  Group group_;
  std::unique_ptr<Requests> requests_;
};

/// Sums parts of a buffer over the ranks without blocking: part r = [bounds[r], bounds[r + 1]) of
/// rank r ends up as the sum over all ranks, formed in rank order; the other parts only are read.
class PartReduction {
 public:
  /// @param x       contiguous f32, f64, i32 or i64 on the CPU
  /// @param bounds  [size() + 1] elements of x, non-decreasing; the same on all ranks
  PartReduction(Tensor x, std::vector<int64_t> bounds, const Group& group);

  /// Whether the sum is in place.
  bool test();
  void wait();

 private:
  void post();
  void sum();

  Tensor x_;
  std::vector<int64_t> bounds_;
  Group group_;
  Exchange exchange_;
  Tensor staging_;  // own part of every other rank, one after the other in rank order
  bool done_ = false;
};

/// Copies part r of rank r to all ranks, for parts as above and any dtype; posts only.
void post_part_gather(const Tensor& x, const std::vector<int64_t>& bounds, const Group& group,
                      Exchange& exchange);

}  // namespace smelt::dist
