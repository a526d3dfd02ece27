// Private to tensor/cpu: one matrix product on raw pointers, the building block of the fused
// kernels and of tensor/gemm.h.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace smelt::kernels::cpu {

/// c = alpha * op(a) op(b) + beta * c, row-major; op transposes where ta or tb is set. op(a) is
/// [M, K], op(b) [K, N]; lda, ldb and ldc are the distances between stored rows, at least as long
/// as a row (ignored where there is only one). c must not overlap a or b.
///
/// T is float, double or bf16; bf16 operands give sums in float. float runs on oneDNN's sgemm, bf16
/// on its bf16 counterpart where the processor has such a product (native_bf16()) and on
/// gemm_widened() elsewhere. They keep no state per shape: memory stays flat however many shapes
/// come by, and threads may call them at once. double runs on blocked loops of our own. Inside a
/// parallel region all run on the calling thread alone.
///
/// M or N of 0 does nothing; K of 0 gives beta * c; beta of 0 never reads c, so c may be
/// uninitialised.
/// @throws ShapeError on negative sizes or a leading dimension shorter than its row; Error with the
/// shape when the library fails
template <typename T>
void gemm(bool ta, bool tb, int64_t M, int64_t N, int64_t K, acc_t<T> alpha, const T* a,
          int64_t lda, const T* b, int64_t ldb, acc_t<T> beta, acc_t<T>* c, int64_t ldc);

/// Whether bf16 products run on the processor's own (AVX512-BF16 or AMX). oneDNN's setting
/// ONEDNN_MAX_CPU_ISA counts, so that AVX2 or AVX512_CORE there turns them off.
bool native_bf16();

/// gemm<bf16> for processors without such a product: blocks of a and b are converted to float, for
/// sgemm. Sizes and strides are those that gemm has checked, none of them 0.
void gemm_widened(bool ta, bool tb, int64_t M, int64_t N, int64_t K, float alpha, const bf16* a,
                  int64_t lda, const bf16* b, int64_t ldb, float beta, float* c, int64_t ldc);

}  // namespace smelt::kernels::cpu
