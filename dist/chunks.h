// Cutting long messages. MPI 3 counts are int, and libraries multiply counts by type sizes in int,
// so no message may reach 2^31 elements or bytes. Every call of dist/ that moves data is cut here.
#pragma once

#include <cstdint>

namespace smelt::dist {

/// Elements per message unless a Group says otherwise: 2^30 bytes of the widest dtype.
constexpr int64_t kDefaultChunkElements = int64_t(1) << 27;

/// `count` elements as size() consecutive chunks of at most `limit`, all full but the last.
class ChunkPlan {
 public:
  /// Throws CommError if count < 0 or limit is not in 1..2^31-1.
  ChunkPlan(int64_t count, int64_t limit);

  int64_t size() const { return chunks_; }
  /// First element of a chunk.
  int64_t begin(int64_t chunk) const { return chunk * limit_; }
  /// Elements of a chunk, as the int that MPI takes.
  int length(int64_t chunk) const;

 private:
  int64_t count_;
  int64_t limit_;
  int64_t chunks_;
};

/// `value` as int; throws CommError naming `what` when it does not fit.
int checked_int(int64_t value, const char* what);

}  // namespace smelt::dist
