// Where each parameter lies in one flat buffer, and the buckets in which the buffer is reduced.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace smelt::dist {

/// Elements [begin, end) of a flat buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Parameters lie in the given order, each at a multiple of 64 bytes. Buckets are consecutive and
/// cover the buffer; each holds whole parameters and is padded so that it divides into group_size
/// equal parts of a multiple of 64 bytes. Padding must be kept zero.
struct BucketLayout {
  int64_t numel = 0;               // length of the flat buffer
  int group_size = 1;              // ranks that share the buffer's ownership
  std::vector<Range> parameters;   // elements of each parameter, without padding
  std::vector<Range> buckets;      // elements of each bucket, padding included
  std::vector<int64_t> bucket_of;  // bucket of each parameter
  /// The part of every bucket that rank `rank` of the group owns; one range per bucket.
  std::vector<Range> owned_ranges(int rank) const;
};

/// Layout for parameters of these sizes (elements). A bucket is closed before it would exceed
/// `bucket_bytes`; a larger parameter gets a bucket of its own. Throws ConfigError unless
/// bucket_bytes and group_size are positive and sizes are not negative.
BucketLayout plan_buckets(const std::vector<int64_t>& sizes, int group_size, int64_t bucket_bytes,
                          DType dtype);

}  // namespace smelt::dist
