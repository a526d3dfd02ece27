// Rotary positions (Su et al., 2021), half-split pairing as in GPT-NeoX and Qwen3: element j pairs
// with j + D/2 and turns by position * theta^(-2j/D).
#pragma once

#include "tensor/tensor.h"

namespace smelt {

struct RotaryTable {
  Tensor cosines;  // [positions, D/2] f32 (f64 for f64)
  Tensor sines;
};
/// Table for positions 0 .. positions-1; head_dim must be even and positive, else ShapeError.
RotaryTable rotary_table(int64_t positions, int64_t head_dim, double theta, DType dtype);

/// Turns every head of x [T, heads, D] by its token's position; `inverse` turns back (the
/// backward). positions [T] i32, each below the table's length, else ShapeError. out[j] = x[j] cos
/// - x[j + D/2] sin, out[j + D/2] = x[j + D/2] cos + x[j] sin.
Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryTable& table, bool inverse);

}  // namespace smelt
