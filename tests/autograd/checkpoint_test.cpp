// Recomputation: checkpoint() must give what the plain graph gives, bit for bit.
#include "autograd/elementwise.h"
#include "autograd/layers.h"
#include "autograd/linear.h"
#include "autograd/variable.h"
#include "tensor/allocator.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;
using Variables = std::vector<Variable>;

constexpr int64_t kTokens = 6, kWidth = 8;

/// A pre-norm residual block whose weights are used twice within one visit.
struct Block {
  Variable gain, up, down;
  explicit Block(DType dtype)
      : gain(random_tensor({kWidth}, dtype, 1), true),
        up(random_tensor({2 * kWidth, kWidth}, dtype, 2, 0.3), true),
        down(random_tensor({kWidth, kWidth}, dtype, 3, 0.3), true) {}

  Variables parameters() const { return {gain, up, down}; }
  Variable half(const Variable& x) const {
    return add_scaled(x, linear(swiglu(linear(rms_norm(x, gain, 1e-6), up)), down), 0.5);
  }
  Variables operator()(const Variables& x) const { return {half(half(x[0]))}; }
};

/// Gradients of block parameters and input after `visits` visits, each wrapped by `visit`.
template <typename Visit>
std::vector<Tensor> looped_gradients(DType dtype, int visits, Visit visit) {
  const Block block(dtype);
  const Variable x(random_tensor({kTokens, kWidth}, dtype, 4), true);
  Variable h = x;
  for (int i = 0; i < visits; ++i) h = visit(block, h);
  h = add_scaled(h, linear(h, block.down));  // the same weight outside of any block, too
  backward({h}, {random_tensor(h.shape(), dtype, 5)});
  return {x.grad(), block.gain.grad(), block.up.grad(), block.down.grad()};
}

Variable plain(const Block& block, const Variable& x) { return block({x})[0]; }
Variable recomputed(const Block& block, const Variable& x) {
  return checkpoint([block](const Variables& in) { return block(in); }, {x}, block.parameters())[0];
}
Variable nested(const Block& block, const Variable& x) {
  const Function half = [block](const Variables& in) { return Variables{block.half(in[0])}; };
  const Function whole = [=](const Variables& in) {
    return checkpoint(half, checkpoint(half, in, block.parameters()), block.parameters());
  };
  return checkpoint(whole, {x}, block.parameters())[0];
}

struct Way {
  const char* name;
  Variable (*visit)(const Block&, const Variable&);
};
constexpr Way kWays[] = {{"plain", plain}, {"one level", recomputed}, {"nested", nested}};

BOOST_AUTO_TEST_SUITE(recomputation)

BOOST_AUTO_TEST_CASE(gradients_have_the_bits_of_the_plain_graph) {
  // CASES 41: every number of visits.
  for (const DType dtype : kFloating) {
    for (const int visits : {1, 2, 4}) {
      const std::vector<Tensor> expected = looped_gradients(dtype, visits, plain);
      for (const Way& way : kWays) {
        const std::vector<Tensor> result = looped_gradients(dtype, visits, way.visit);
        for (size_t i = 0; i < expected.size(); ++i) {
          BOOST_TEST_CONTEXT(way.name << ", " << dtype << ", visits " << visits << ", gradient "
                                      << i) {
            check_same_bits(result[i], expected[i]);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(forward_values_are_those_of_the_function) {
  const Block block(DType::f32);
  const Variable x(random_tensor({kTokens, kWidth}), true);
  check_same_bits(recomputed(block, x).data(), plain(block, x).data());
  check_same_bits(nested(block, x).data(), plain(block, x).data());
}

BOOST_AUTO_TEST_CASE(several_inputs_and_outputs) {
  // Inputs: one with gradient, one without, integers; outputs: used, unused, an input, a parameter.
  const Variable w(random_tensor({3, 3}, DType::f64, 1), true);
  const Function f = [&](const Variables& in) {
    const Variable picked = embedding(in[0], in[2].data());
    const Variable mixed = mul(linear(picked, w), in[1]);
    return Variables{mixed, scale(mixed, 3), in[0], w};
  };
  const Tensor table = random_tensor({4, 3}, DType::f64, 2),
               gate = random_tensor({2, 3}, DType::f64, 3);
  const Tensor ids = Tensor::from<int32_t>({2, 0});
  std::vector<Tensor> grads[2];
  for (const bool again : {false, true}) {
    w.set_grad(Tensor::zeros({3, 3}, {DType::f64, {}}));
    const Variable x(table, true);
    const Variables in = {x, Variable(gate), Variable(ids)};
    const Variables out = again ? checkpoint(f, in, {w}) : f(in);
    BOOST_TEST(out.size() == 4u);
    const Variable loss =
        add_scaled(sum(mul(out[0], out[0])),
                   add_scaled(sum(mul(out[2], out[2])), sum(mul(out[3], out[3]))), 0.5);
    backward(loss);
    grads[again] = {x.grad(), w.grad()};
  }
  for (size_t i = 0; i < 2; ++i) check_close(grads[1][i], grads[0][i], 1e-14, 1e-14);
}

BOOST_AUTO_TEST_CASE(inputs_that_want_no_gradient_get_none) {
  const Block block(DType::f32);
  const Variable x(random_tensor({kTokens, kWidth}));
  backward(sum(recomputed(block, x)));
  BOOST_TEST(!x.grad().defined());
  BOOST_TEST(block.up.grad().defined());
  // Without anything to learn nothing is recorded.
  int runs = 0;
  const Variables out = checkpoint(
      [&](const Variables& in) {
        ++runs;
        return in;
      },
      {x}, {});
  BOOST_TEST(!out[0].requires_grad());
  BOOST_TEST(runs == 1);
}

BOOST_AUTO_TEST_CASE(the_second_run_is_marked) {
  // CASES 13: what is counted while recomputing() is false is counted once.
  for (const int levels : {0, 1, 2, 3}) {
    int counted = 0, runs = 0, unrecorded = 0;
    Function f = [&](const Variables& in) {
      ++runs;
      if (!recomputing()) ++counted;
      if (!grad_enabled()) ++unrecorded;
      return Variables{mul(in[0], in[0])};
    };
    for (int level = 0; level < levels; ++level)
      f = [f](const Variables& in) { return checkpoint(f, in, {}); };
    const Variable x(Tensor::full({1}, 3), true);
    const Variable loss = sum(f({x})[0]);
    BOOST_TEST(!recomputing());
    backward(loss);
    BOOST_TEST_CONTEXT("levels " << levels) {
      BOOST_TEST(counted == 1);
      BOOST_TEST(runs == levels + 1);
      BOOST_TEST(unrecorded == levels);  // only the last run records
      BOOST_TEST(x.grad().item() == 6);
    }
    BOOST_TEST(!recomputing());
  }
  const NoGrad no_grad;
  int runs = 0;
  checkpoint(
      [&](const Variables& in) {
        ++runs;
        return in;
      },
      {Variable(Tensor::full({1}, 3), true)}, {});
  BOOST_TEST(runs == 1);
}

BOOST_AUTO_TEST_CASE(ready_hooks_fire_once_whatever_is_recomputed) {
  for (const Way& way : kWays) {
    BOOST_TEST_CONTEXT(way.name) {
      const Block block(DType::f64);
      std::vector<int> fired(3);
      std::vector<Tensor> at_hook(3);
      const Variables parameters = block.parameters();
      for (size_t i = 0; i < 3; ++i) {
        parameters[i].set_ready_hook([&, i] {
          ++fired[i];
          at_hook[i] = parameters[i].grad().clone();
        });
      }
      const Variable x(random_tensor({kTokens, kWidth}, DType::f64), true);
      int input_fired = 0;
      x.set_ready_hook([&] { ++input_fired; });
      for (int pass = 1; pass <= 2; ++pass) {
        Variable h = mul(linear(x, block.down), x);
        for (int i = 0; i < 3; ++i) h = way.visit(block, h);
        h = linear(h, block.down);
        backward(sum(mul(h, h)));
        for (size_t i = 0; i < 3; ++i) {
          BOOST_TEST(fired[i] == pass);
          check_same_bits(at_hook[i], parameters[i].grad());
        }
        BOOST_TEST(input_fired == pass);
      }
      // The hooks hold the variables they belong to.
      for (const Variable& p : parameters) p.set_ready_hook(nullptr);
      x.set_ready_hook(nullptr);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_second_walk_is_refused) {
  const Block block(DType::f32);
  const Variable x(random_tensor({kTokens, kWidth}), true);
  const Variable loss = sum(recomputed(block, x));
  const Variable output = recomputed(block, x);
  backward(loss);
  BOOST_CHECK_EXCEPTION(backward(loss), Error, says("was walked before and is released"));
  backward({output}, {Tensor::full(output.shape(), 1)});
  BOOST_CHECK_EXCEPTION(backward({output}, {Tensor::full(output.shape(), 1)}), Error,
                        says("the graph of 'checkpoint' was walked before"));
}

BOOST_AUTO_TEST_CASE(an_error_in_the_second_run_restores_the_modes) {
  const Variable x(Tensor::full({1}, 3), true);
  const Function f = [](const Variables& in) {
    SMELT_CHECK(Error, !recomputing(), "not again");
    return Variables{mul(in[0], in[0])};
  };
  const Variable loss = sum(checkpoint(f, {x}, {})[0]);
  {
    const NoGrad no_grad;
    BOOST_CHECK_EXCEPTION(backward(loss), Error, says("not again"));
    BOOST_TEST(!grad_enabled());
  }
  BOOST_TEST(!recomputing());
  // Hooks of later backward calls still fire: the depth is restored, too.
  int fired = 0;
  x.set_ready_hook([&] { ++fired; });
  backward(sum(x));
  BOOST_TEST(fired == 1);
  x.set_ready_hook(nullptr);
}

BOOST_AUTO_TEST_CASE(memory_is_one_boundary_per_visit_and_one_visit) {
  // CASES 41: wide internals, narrow boundaries.
  const int64_t tokens = 64, wide = 512;
  const Variable up(random_tensor({2 * wide, kWidth}, DType::f32, 1), true);
  const Variable down(random_tensor({kWidth, wide}, DType::f32, 2), true);
  const Tensor x = random_tensor({tokens, kWidth}, DType::f32, 3);
  for (const Variable& w : {up, down}) w.set_grad(Tensor::zeros(w.shape()));
  const Function f = [&](const Variables& in) {
    return Variables{add_scaled(in[0], linear(swiglu(linear(in[0], up)), down), 0.5)};
  };
  const auto peak = [&](int visits, bool recompute) {
    const size_t before = allocator().stats().live_bytes;
    allocator().reset_peak();
    {
      Variable h(x);
      for (int i = 0; i < visits; ++i)
        h = recompute ? checkpoint(f, {h}, {up, down})[0] : f({h})[0];
      backward(sum(h));
    }
    BOOST_TEST(allocator().stats().live_bytes == before);
    return int64_t(allocator().stats().peak_live_bytes - before);
  };
  const int64_t boundary = x.bytes(), internals = tokens * 3 * wide * 4;
  const int64_t one = peak(1, true);
  for (const int visits : {2, 4, 8}) {
    BOOST_TEST(peak(visits, true) <= one + visits * boundary * 9 / 8);
    BOOST_TEST(peak(visits, false) >= visits * internals);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
