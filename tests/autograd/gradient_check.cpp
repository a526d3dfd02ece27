#include "tests/autograd/gradient_check.h"

#include "autograd/elementwise.h"
#include "tensor/elementwise.h"

namespace smelt::testing {
namespace {

struct Result {
  std::vector<Tensor> outputs, grads;
};

std::vector<Tensor> data_of(const std::vector<Variable>& variables) {
  std::vector<Tensor> tensors;
  for (const Variable& v : variables) tensors.push_back(v.data());
  return tensors;
}

std::vector<Tensor> converted(const std::vector<Tensor>& tensors, DType dtype) {
  std::vector<Tensor> result;
  for (const Tensor& t : tensors) result.push_back(t.to(dtype));
  return result;
}

/// Weights of the loss: one random tensor per output, in the output's dtype.
std::vector<Tensor> loss_weights(const std::vector<Tensor>& outputs) {
  std::vector<Tensor> weights;
  for (size_t i = 0; i < outputs.size(); ++i)
    weights.push_back(random_tensor(outputs[i].shape(), outputs[i].dtype(), 1000 + i));
  return weights;
}

/// Forward and backward with these upstream gradients; `only` >= 0: the one input with a gradient.
Result run(const Function& f, const std::vector<Tensor>& inputs,
           const std::vector<Tensor>& upstream, int only = -1) {
  std::vector<Variable> leaves;
  for (size_t i = 0; i < inputs.size(); ++i)
    leaves.emplace_back(inputs[i], only < 0 || only == int(i));
  const std::vector<Variable> outputs = f(leaves);
  backward(outputs, upstream);
  Result result{data_of(outputs), {}};
  for (const Variable& leaf : leaves) result.grads.push_back(leaf.grad());
  return result;
}

/// Norm-wise roundoff of a short chain of operations; bf16 rounds only what is stored.
double roundoff_limit(DType dtype) {
  return (dtype == DType::bf16 ? 8 : 64) * unit_roundoff(dtype);
}

void check_same(const Tensor& a, const Tensor& b, bool bits) {
  if (bits) {
    check_same_bits(a, b);
  } else {
    BOOST_TEST(a.dtype() == b.dtype());
    BOOST_TEST(relative_error(a, b, 1e-3) < roundoff_limit(DType::f32));
  }
}

void check_same(const Result& result, const Result& expected, bool bits) {
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    BOOST_TEST_CONTEXT("output " << i) { check_same(result.outputs[i], expected.outputs[i], bits); }
  }
  for (size_t i = 0; i < expected.grads.size(); ++i) {
    BOOST_TEST_CONTEXT("gradient of input " << i) {
      check_same(result.grads[i], expected.grads[i], bits);
    }
  }
}

/// The values of x between rows of NaN in a larger buffer.
Tensor cut_out(const Tensor& x) {
  Shape taller = x.shape();
  taller[0] += 2;
  const Tensor view = Tensor::full(taller, kNaN, x.options()).slice(0, 1, 1 + x.dim(0));
  view.copy_(x);
  return view;
}

/// x with its first index along dimension d repeated by stride 0.
Tensor expanded(const Tensor& x, int64_t d) {
  return x.dim(d) < 2 ? x : x.slice(d, 0, 1).expand(x.shape());
}

void check_differences(const Function& f, const std::vector<Tensor>& inputs,
                       const std::vector<Tensor>& weights, const Result& result,
                       const GradientCheck& options) {
  const NoGrad no_grad;
  std::vector<Tensor> moved;
  for (const Tensor& input : inputs) moved.push_back(input.clone());
  const auto loss = [&] {
    std::vector<Variable> variables;
    for (const Tensor& t : moved) variables.emplace_back(t);
    const std::vector<Variable> outputs = f(variables);
    double total = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::vector<double> y = doubles(outputs[i].data()), w = doubles(weights[i]);
      for (size_t j = 0; j < y.size(); ++j) total += y[j] * w[j];
    }
    return total;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<double> slopes(size_t(inputs[i].numel()));
    for (size_t j = 0; j < slopes.size(); ++j) {
      double* const element = moved[i].data<double>() + j;
      const double centre = *element;
      const auto at = [&](double distance) {
        *element = centre + distance;
        return loss();
      };
      const double near = at(options.h) - at(-options.h);
      const double far = at(2 * options.h) - at(-2 * options.h);
      slopes[j] = (8 * near - far) / (12 * options.h);
      *element = centre;
    }
    const double error = relative_error(result.grads[i], Tensor::from(slopes, inputs[i].shape()));
    BOOST_CHECK_MESSAGE(error < options.limit,
                        "input " << i << " " << to_string(inputs[i].shape())
                                 << ": gradient differs from finite differences by " << error);
  }
}

/// The same values in other layouts must give the same bits.
void check_input_layouts(const Function& f, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& upstream, const Result& expected, bool bits) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto with = [&](const Tensor& replacement) {
      std::vector<Tensor> changed = inputs;
      changed[i] = replacement;
      return changed;
    };
    BOOST_TEST_CONTEXT("input " << i << " cut out of a buffer") {
      check_same(run(f, with(cut_out(inputs[i])), upstream), expected, bits);
    }
    if (inputs[i].rank() >= 2) {
      BOOST_TEST_CONTEXT("input " << i << " transposed") {
        check_same(run(f, with(strided(inputs[i])), upstream), expected, bits);
      }
      BOOST_TEST_CONTEXT("input " << i << " transposed in the graph") {
        const Function transposing = [&](const std::vector<Variable>& x) {
          std::vector<Variable> turned = x;
          turned[i] = transpose(x[i], 0, -1);
          return f(turned);
        };
        Result result = run(transposing, with(inputs[i].transpose(0, -1).contiguous()), upstream);
        if (result.grads[i].defined()) result.grads[i] = result.grads[i].transpose(0, -1);
        check_same(result, expected, bits);
      }
    }
    for (const int64_t d : {int64_t{0}, inputs[i].rank() - 1}) {
      BOOST_TEST_CONTEXT("input " << i << " expanded along " << d) {
        const Tensor view = expanded(inputs[i], d);
        check_same(run(f, with(view), upstream), run(f, with(view.clone()), upstream), bits);
      }
    }
  }
}

void check_upstream_layouts(const Function& f, const std::vector<Tensor>& inputs,
                            const std::vector<Tensor>& upstream, const Result& expected,
                            bool bits) {
  for (size_t i = 0; i < upstream.size(); ++i) {
    const auto with = [&](const Tensor& replacement) {
      std::vector<Tensor> changed = upstream;
      changed[i] = replacement;
      return changed;
    };
    BOOST_TEST_CONTEXT("gradient of output " << i << " cut out of a buffer") {
      check_same(run(f, inputs, with(cut_out(upstream[i]))), expected, bits);
    }
    if (upstream[i].rank() >= 2) {
      BOOST_TEST_CONTEXT("gradient of output " << i << " transposed") {
        check_same(run(f, inputs, with(strided(upstream[i]))), expected, bits);
      }
      BOOST_TEST_CONTEXT("output " << i << " transposed in the graph") {
        const Function transposing = [&](const std::vector<Variable>& x) {
          std::vector<Variable> outputs = f(x);
          outputs[i] = transpose(outputs[i], 0, -1);
          return outputs;
        };
        const Result result = run(transposing, inputs, with(upstream[i].transpose(0, -1)));
        check_same({expected.outputs, result.grads}, expected, bits);
      }
    }
    for (const int64_t d : {int64_t{0}, upstream[i].rank() - 1}) {
      BOOST_TEST_CONTEXT("gradient of output " << i << " expanded along " << d) {
        const Tensor view = expanded(upstream[i], d);
        check_same(run(f, inputs, with(view)), run(f, inputs, with(view.clone())), bits);
      }
    }
    if (upstream[i].rank() == 2) {
      BOOST_TEST_CONTEXT("output " << i << " in a concatenation") {
        const Function concatenating = [&](const std::vector<Variable>& x) {
          std::vector<Variable> outputs = f(x);
          const Variable z(Tensor::zeros({2, upstream[i].dim(1)}, upstream[i].options()));
          outputs[i] = concat_rows({z, outputs[i], z});
          return outputs;
        };
        const Shape taller = {upstream[i].dim(0) + 4, upstream[i].dim(1)};
        const Tensor weights = Tensor::full(taller, kNaN, upstream[i].options());
        weights.slice(0, 2, 2 + upstream[i].dim(0)).copy_(upstream[i]);
        const Result result = run(concatenating, inputs, with(weights));
        check_same({expected.outputs, result.grads}, expected, bits);
      }
    }
    BOOST_TEST_CONTEXT("gradient of output " << i << " undefined") {
      const Result zeros =
          run(f, inputs, with(Tensor::zeros(upstream[i].shape(), upstream[i].options())));
      const Result none = run(f, inputs, with(Tensor()));
      for (size_t j = 0; j < inputs.size(); ++j) {
        // A leaf that nothing was added to may still lack its buffer: that is zero too.
        const Tensor grad = none.grads[j].defined()
                                ? none.grads[j]
                                : Tensor::zeros(zeros.grads[j].shape(), zeros.grads[j].options());
        check_close(grad, zeros.grads[j], 0, 0);
      }
    }
  }
}

void check_subsets(const Function& f, const std::vector<Tensor>& inputs,
                   const std::vector<Tensor>& upstream, const Result& expected, bool bits) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    BOOST_TEST_CONTEXT("only input " << i << " wants a gradient") {
      const Result result = run(f, inputs, upstream, int(i));
      for (size_t j = 0; j < inputs.size(); ++j) {
        if (j == i) {
          check_same(result.grads[j], expected.grads[j], bits);
        } else {
          BOOST_TEST(!result.grads[j].defined());
        }
      }
    }
  }
}

void check_accumulation(const Function& f, const std::vector<Tensor>& inputs,
                        const std::vector<Tensor>& upstream, const Result& expected) {
  std::vector<Variable> leaves;
  for (const Tensor& input : inputs) leaves.emplace_back(input, true);
  for (int pass = 0; pass < 2; ++pass) backward(f(leaves), upstream);
  for (size_t i = 0; i < inputs.size(); ++i)
    BOOST_TEST(relative_error(leaves[i].grad(), scale(expected.grads[i], 2)) < 1e-14);
}

}  // namespace

double relative_error(const Tensor& a, const Tensor& b, double floor) {
  BOOST_REQUIRE_MESSAGE(a.defined() && b.defined(), "undefined tensor");
  BOOST_REQUIRE_EQUAL(to_string(a.shape()), to_string(b.shape()));
  const std::vector<double> x = doubles(a), y = doubles(b);
  double difference = 0, first = floor * floor, second = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    first += x[i] * x[i];
    second += y[i] * y[i];
  }
  return std::sqrt(difference / std::max(first, second));
}

std::vector<Tensor> random_inputs(const std::vector<Shape>& shapes, uint64_t seed) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < shapes.size(); ++i)
    inputs.push_back(random_tensor(shapes[i], DType::f64, 100 * seed + i));
  return inputs;
}

void check_gradients(const Function& f, const std::vector<Tensor>& inputs,
                     const GradientCheck& options) {
  std::string shapes;
  for (const Tensor& input : inputs) shapes.append(" ").append(to_string(input.shape()));
  for (const DType dtype : {DType::f64, DType::f32}) {
    BOOST_TEST_CONTEXT("inputs" << shapes << ", " << dtype) {
      const bool bits = dtype == DType::f64 || options.same_bits_in_f32;
      const std::vector<Tensor> typed = converted(inputs, dtype);
      std::vector<Tensor> outputs;
      {
        const NoGrad no_grad;
        std::vector<Variable> plain;
        for (const Tensor& t : typed) plain.emplace_back(t);
        outputs = data_of(f(plain));
      }
      const std::vector<Tensor> weights = loss_weights(outputs);
      const Result result = run(f, typed, weights);
      if (dtype == DType::f64) {
        check_differences(f, typed, weights, result, options);
        check_accumulation(f, typed, weights, result);
      }
      check_input_layouts(f, typed, weights, result, bits);
      check_upstream_layouts(f, typed, weights, result, bits);
      check_subsets(f, typed, weights, result, bits);
    }
  }
  for (const DType dtype : options.dtypes) {
    BOOST_TEST_CONTEXT("inputs" << shapes << ", " << dtype << " against f64") {
      const std::vector<Tensor> low = converted(inputs, dtype);
      const std::vector<Tensor> exact = converted(low, DType::f64);
      std::vector<Variable> plain;
      for (const Tensor& t : low) plain.emplace_back(t);
      const std::vector<Tensor> weights = loss_weights(data_of(f(plain)));
      const Result result = run(f, low, weights);
      const Result reference = run(f, exact, converted(weights, DType::f64));
      for (size_t i = 0; i < inputs.size(); ++i) {
        BOOST_TEST(result.grads[i].dtype() == accumulation_dtype(dtype));
        const double error = relative_error(result.grads[i], reference.grads[i], 1e-3);
        BOOST_CHECK_MESSAGE(error < roundoff_limit(dtype),
                            "input " << i << ": the gradient is off by " << error);
      }
    }
  }
}

}  // namespace smelt::testing
