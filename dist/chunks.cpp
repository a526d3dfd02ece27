#include "dist/chunks.h"

#include <algorithm>
#include <limits>

#include "tensor/error.h"

namespace smelt::dist {

int checked_int(int64_t value, const char* what) {
  SMELT_CHECK(CommError,
              value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max(),
              what << " " << value << " does not fit MPI's int");
  return int(value);
}

ChunkPlan::ChunkPlan(int64_t count, int64_t limit) : count_(count), limit_(limit), chunks_(0) {
  SMELT_CHECK(CommError, count >= 0, "chunks: count " << count << " is negative");
  SMELT_CHECK(CommError, limit >= 1 && limit <= std::numeric_limits<int>::max(),
              "chunks: limit " << limit << " must be in 1..2147483647");
  chunks_ = count / limit + (count % limit != 0);
}

int ChunkPlan::length(int64_t chunk) const {
  return checked_int(std::min(limit_, count_ - begin(chunk)), "chunk length");
}

}  // namespace smelt::dist
