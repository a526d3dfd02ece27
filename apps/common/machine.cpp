#include "apps/common/machine.h"

#include <algorithm>
#include <chrono>

#include "tensor/gemm.h"

namespace smelt {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double best_of(int runs, const std::function<void()>& work) {
  double best = seconds_of(work);
  for (int i = 1; i < runs; ++i) best = std::min(best, seconds_of(work));
  return best;
}

double matrix_rate(DType dtype, int64_t size) {
  const Tensor a = Tensor::full({size, size}, 0.5, {dtype, {}}),
               b = Tensor::full({size, size}, 0.25, {dtype, {}});
  const Tensor c = Tensor::empty({size, size}, {dtype, {}});
  matmul_(c, a, b, 1, 0);
  const double n = double(size);
  return 2 * n * n * n / best_of(5, [&] { matmul_(c, a, b, 1, 0); });
}

}  // namespace smelt
