// Private to tensor/cpu: products with a few rows, as in generation with a KV cache. Their time is
// that of reading the matrix once; a general product would first rearrange it.
#pragma once

#include <cstdint>

namespace smelt::kernels::cpu {

/// Rows up to which this is faster than a general product.
inline constexpr int64_t kSkinnyRows = 4;

/// y = x w^T with x [M, K] and y [M, N] in float and w [N, K] float or bf16, row-major with
/// distances ldx, ldw and ldy between rows; 1 <= M <= kSkinnyRows. Sums are float, each in an order
/// that depends on K alone. Inside a parallel region it runs on the calling thread alone.
template <typename W>
void skinny_product(int64_t M, int64_t N, int64_t K, const float* x, int64_t ldx, const W* w,
                    int64_t ldw, float* y, int64_t ldy);

}  // namespace smelt::kernels::cpu
