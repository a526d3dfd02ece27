// Private to tensor/cpu: one matrix product on raw pointers, the building block of the fused
// kernels and of tensor/gemm.h.
#pragma once

#include <cstdint>

namespace smelt::kernels::cpu {

/// c = alpha * op(a) op(b) + beta * c, row-major; op transposes where ta or tb is set. op(a) is
/// [M, K], op(b) [K, N]; lda, ldb and ldc are the distances between stored rows, at least as long
/// as a row (ignored where there is only one). c must not overlap a or b.
///
/// float runs on oneDNN's sgemm, which keeps no state per shape: memory stays flat however many
/// shapes come by, and threads may call it at once. double runs on blocked loops of our own. Inside
/// a parallel region either runs on the calling thread alone.
///
/// M or N of 0 does nothing; K of 0 gives beta * c; beta of 0 never reads c, so c may be
/// uninitialised.
/// @throws ShapeError on negative sizes or a leading dimension shorter than its row; Error with the
/// shape when the library fails
template <typename T>
void gemm(bool ta, bool tb, int64_t M, int64_t N, int64_t K, T alpha, const T* a, int64_t lda,
          const T* b, int64_t ldb, T beta, T* c, int64_t ldc);

}  // namespace smelt::kernels::cpu
