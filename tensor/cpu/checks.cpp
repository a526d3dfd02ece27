#include "tensor/kernels/checks.h"

namespace smelt::kernels::cpu {

void find_out_of_range(const Tensor& index, int64_t limit, int64_t* position) {
  const int32_t* p = index.data<int32_t>();
  const int64_t n = index.numel();
  int64_t first = n;
#pragma omp parallel for simd schedule(static) reduction(min : first) if (n > kParallelGrain)
  for (int64_t i = 0; i < n; ++i) {
    const int64_t bad = p[i] < 0 || p[i] >= limit ? i : n;
    first = bad < first ? bad : first;
  }
  *position = first == n ? -1 : first;
}

}  // namespace smelt::kernels::cpu
