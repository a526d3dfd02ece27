// Checks the gradients of a differentiable function against finite differences and against
// themselves, over every layout in which inputs and upstream gradients can arrive.
#pragma once

#include <vector>

#include "autograd/variable.h"
#include "tests/testing.h"

namespace smelt::testing {

struct GradientCheck {
  /// Distance of the difference points. With the fourth-order stencil the truncation error is about
  /// h^4 / 30 times the fifth derivative and the rounding error about 1e-16 / h: 1e-13 both.
  double h = 1e-3;
  /// Largest |analytic - numeric| / max(|analytic|, |numeric|, 1e-6), Euclidean norms per input.
  double limit = 1e-6;
  /// Lower precisions in which the function must give the gradient of f64 up to their roundoff.
  std::vector<DType> dtypes = {DType::f32, DType::bf16};
  /// Whether other layouts give the same bits in f32, too. Products sum in an order that depends on
  /// the layout of their operands there: false allows their roundoff.
  bool same_bits_in_f32 = true;
};

/// f of contiguous f64 inputs, all of which get a gradient. The loss is sum_i <w_i, f_i> with
/// random w_i, so that no gradient cancels. Checked, each in its own BOOST_TEST_CONTEXT:
///  - f64: the gradients equal central differences; twice the backward is twice the gradient;
///  - f64 and f32: the same result when inputs are transposed, cut out of a larger buffer, expanded
///  or
///    the result of a transposition in the graph; when upstream gradients are transposed, expanded,
///    rows of a concatenation; when only one input wants a gradient; an undefined upstream gradient
///    equals zeros;
///  - lower precisions: close to f64.
/// f must be a pure function that takes its dtype from its inputs.
void check_gradients(const Function& f, const std::vector<Tensor>& inputs,
                     const GradientCheck& options = {});

/// A Function from a callable of one input list that returns one Variable.
template <typename F>
Function single(F f) {
  return [f](const std::vector<Variable>& x) { return std::vector<Variable>{f(x)}; };
}

/// |a - b| / max(|a|, |b|, floor) in Euclidean norms; NaN when either holds NaN.
double relative_error(const Tensor& a, const Tensor& b, double floor = 1e-6);

/// Random contiguous f64 inputs of these shapes.
std::vector<Tensor> random_inputs(const std::vector<Shape>& shapes, uint64_t seed = 1);

}  // namespace smelt::testing
