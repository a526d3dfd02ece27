// What this process gets out of the machine.
#pragma once

#include <cstdint>
#include <functional>

#include "tensor/dtype.h"

namespace smelt {

/// Wall-clock seconds that `work` takes.
double seconds_of(const std::function<void()>& work);
/// The least of several runs.
double best_of(int runs, const std::function<void()>& work);

/// FLOP/s of the product of two square matrices of f32 or bf16, best of five.
double matrix_rate(DType dtype, int64_t size = 2048);

}  // namespace smelt
