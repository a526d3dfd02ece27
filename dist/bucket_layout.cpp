#include "dist/bucket_layout.h"

#include "tensor/error.h"

namespace smelt::dist {

namespace {

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

BucketLayout plan_buckets(const std::vector<int64_t>& sizes, int group_size, int64_t bucket_bytes,
                          DType dtype) {
  SMELT_CHECK(ConfigError, group_size >= 1,
              "buckets: group size " << group_size << " must be >= 1");
  SMELT_CHECK(ConfigError, bucket_bytes >= 1,
              "buckets: bucket size " << bucket_bytes << " bytes must be >= 1");
  const int64_t alignment = 64 / size_of(dtype);
  const int64_t capacity = bucket_bytes / size_of(dtype);

  BucketLayout layout;
  layout.group_size = group_size;
  int64_t bucket_begin = 0;
  int64_t end = 0;  // of the last parameter
  const auto close_bucket = [&] {
    layout.numel = bucket_begin + round_up(end - bucket_begin, alignment * group_size);
    layout.buckets.push_back({bucket_begin, layout.numel});
    bucket_begin = end = layout.numel;
  };
  for (size_t p = 0; p < sizes.size(); ++p) {
    SMELT_CHECK(ConfigError, sizes[p] >= 0,
                "buckets: parameter " << p << " has the negative size " << sizes[p]);
    int64_t begin = bucket_begin + round_up(end - bucket_begin, alignment);
    if (sizes[p] > 0 && end > bucket_begin && begin + sizes[p] - bucket_begin > capacity) {
      close_bucket();
      begin = bucket_begin;
    }
    end = begin + sizes[p];
    layout.parameters.push_back({begin, end});
    layout.bucket_of.push_back(int64_t(layout.buckets.size()));
  }
  if (!sizes.empty()) close_bucket();
  return layout;
}

std::vector<Range> BucketLayout::owned_ranges(int rank) const {
  SMELT_CHECK(CommError, rank >= 0 && rank < group_size,
              "owned_ranges: rank " << rank << " must be in 0.." << group_size - 1);
  std::vector<Range> owned;
  for (const Range& bucket : buckets) {
    const int64_t part = bucket.size() / group_size;
    owned.push_back({bucket.begin + rank * part, bucket.begin + (rank + 1) * part});
  }
  return owned;
}

}  // namespace smelt::dist
