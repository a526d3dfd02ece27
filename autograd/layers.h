// Differentiable forms of the transformer's fused operations. The mathematics is documented with
// the tensor operations of the same name (tensor/norm.h, rotary.h, attention.h, activation.h,
// loss.h).
#pragma once

#include "autograd/variable.h"
#include "tensor/rotary.h"

namespace smelt {

/// RMSNorm over the last dimension: x [..., H], weight [H]. Saves x and 1/rms.
Variable rms_norm(const Variable& x, const Variable& weight, double eps);

/// {sum, norm}: the residual addition sum = x + alpha * branch and rms_norm(sum), in one pass each
/// way. Saves sum and 1/rms.
std::vector<Variable> add_rms_norm(const Variable& x, const Variable& branch, double alpha,
                                   const Variable& weight, double eps);

/// Rotary positions on x [T, heads, D]; positions [T] i32. The gradient turns back.
Variable rotary(const Variable& x, const Tensor& positions, const RotaryTable& table);

/// Grouped-query attention with one key range per query: q [B, Sq, A, D], k and v [B, Sk, K, D],
/// begin and end [B, Sq] i32 -> [B, Sq, A, D]. Saves q, k, v, the output and the log-sum-exp.
Variable attention(const Variable& q, const Variable& k, const Variable& v, const Tensor& begin,
                   const Tensor& end, double scale);

/// silu(gate) * up: gate_up [R, 2F] -> [R, F].
Variable swiglu(const Variable& gate_up);

/// table [V, H], ids [T] i32 -> [T, H]. The gradient adds rows in a fixed order.
Variable embedding(const Variable& table, const Tensor& ids);

/// Sum over tokens of the cross-entropy of softmax(x weight^T) against targets, [1] f64; x [T, H],
/// weight [V, H], targets [T] i32 with -1 for no target.
Variable linear_cross_entropy(const Variable& x, const Variable& weight, const Tensor& targets);

}  // namespace smelt
