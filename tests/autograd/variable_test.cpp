#include "autograd/variable.h"

#include "autograd/elementwise.h"
#include "autograd/layers.h"
#include "autograd/linear.h"
#include "tensor/allocator.h"
#include "tensor/elementwise.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;
using Variables = std::vector<Variable>;

Variable leaf(double value, DType dtype = DType::f64) {
  return Variable(Tensor::full({1}, value, {dtype, {}}), true);
}
int64_t live_bytes() { return int64_t(allocator().stats().live_bytes); }

BOOST_AUTO_TEST_SUITE(variable)

BOOST_AUTO_TEST_CASE(a_weight_used_in_a_row_gets_both_gradients) {
  // CASES 34.
  const Variable x(Tensor::full({1}, 3, {DType::f64, {}})), w = leaf(2);
  const Variable y = mul(mul(x, w), w);
  BOOST_TEST(y.item() == 12);
  backward(y);
  BOOST_TEST(w.grad().item() == 12);
  // Residual form, s = 1/2: x1 = x + s w x, x2 = x1 + s w x1.
  const Variable v = leaf(2);
  const Variable x1 = add_scaled(x, mul(v, x), 0.5);
  const Variable x2 = add_scaled(x1, mul(v, x1), 0.5);
  BOOST_TEST(x2.item() == 12);
  backward(x2);
  BOOST_TEST(v.grad().item() == 6);
}

BOOST_AUTO_TEST_CASE(paths_of_different_length_meet) {
  // z = y y + x y + y with y = x x: z = x^4 + x^3 + x^2, dz = 4 x^3 + 3 x^2 + 2 x.
  const Variable x = leaf(1.5);
  const Variable y = mul(x, x);
  const Variable z = add_scaled(add_scaled(mul(y, y), mul(x, y)), y);
  backward(z, 2);
  BOOST_TEST(x.grad().item() == 2 * (4 * 3.375 + 3 * 2.25 + 2 * 1.5));
}

BOOST_AUTO_TEST_CASE(adding_to_one_gradient_leaves_the_other_alone) {
  // add_scaled hands one tensor to both inputs; a gets two more terms, b and the seed none.
  const Variable x = leaf(3), y = leaf(5);
  const Variable a = scale(x, 1), b = scale(y, 1);
  const Variable c = add_scaled(a, b);
  const Tensor seed = Tensor::full({1}, 1, {DType::f64, {}});
  backward({c, mul(a, a), scale(a, 7)}, {seed, seed, seed});
  BOOST_TEST(y.grad().item() == 1);
  BOOST_TEST(x.grad().item() == 1 + 6 + 7);
  BOOST_TEST(seed.item() == 1);
}

BOOST_AUTO_TEST_CASE(several_backward_calls_add_up) {
  const Variable w(random_tensor({4, 3}, DType::f64, 1), true);
  const Variable once(w.data(), true);
  Variables losses;
  for (uint64_t i = 0; i < 4; ++i) {
    const Variable x(random_tensor({5, 3}, DType::f64, 10 + i));
    backward(sum(mul(linear(x, w), linear(x, w))));
    losses.push_back(sum(mul(linear(x, once), linear(x, once))));
  }
  backward(losses, std::vector<Tensor>(4, Tensor::full({1}, 1, {DType::f64, {}})));
  check_close(w.grad(), once.grad(), 1e-13, 1e-13);
}

BOOST_AUTO_TEST_CASE(gradients_of_bf16_leaves_accumulate_in_f32) {
  // CASES 56: a bf16 sum of ones stops at 256.
  const Variable w(Tensor::full({3}, 1, {DType::bf16, {}}), true);
  const Variable table(Tensor::full({2, 1}, 1, {DType::bf16, {}}), true);
  const Tensor ids = Tensor::from<int32_t>({1});
  for (int i = 0; i < 300; ++i) {
    backward(sum(w));
    backward(sum(embedding(table, ids)));
  }
  BOOST_TEST(w.grad().dtype() == DType::f32);
  BOOST_TEST(doubles(w.grad()) == std::vector<double>({300, 300, 300}));
  BOOST_TEST(doubles(table.grad()) == std::vector<double>({0, 300}));
}

BOOST_AUTO_TEST_CASE(a_second_walk_is_refused) {
  const Variable x = leaf(2);
  const Variable y = mul(x, x);
  const Variable z = scale(y, 3);
  const Variable other = scale(y, 5);
  backward(z);
  BOOST_CHECK_EXCEPTION(backward(z), Error,
                        says("backward: the graph of 'scale' was walked before and is released"));
  BOOST_CHECK_EXCEPTION(backward(y), Error, says("the graph of 'mul' was walked before"));
  // `other` was not walked, but what it stands on was.
  BOOST_CHECK_EXCEPTION(backward(other), Error, says("the graph of 'mul' was walked before"));
  BOOST_TEST(x.grad().item() == 12);
}

BOOST_AUTO_TEST_CASE(a_refused_backward_changes_nothing) {
  const Variable x = leaf(2), bare = leaf(1);
  const Variable fresh = scale(x, 3), walked = scale(x, 5);
  backward(walked);
  const Tensor one = Tensor::full({1}, 1, {DType::f64, {}});
  BOOST_CHECK_THROW(backward({bare, fresh, walked}, {one, one, one}), Error);
  BOOST_CHECK_THROW(backward({bare, fresh, fresh}, {one, one, Tensor::zeros({2})}), ShapeError);
  BOOST_TEST(!bare.grad().defined());
  backward(fresh);
  BOOST_TEST(x.grad().item() == 5 + 3);
}

BOOST_AUTO_TEST_CASE(roots_and_seeds) {
  const Variable x(random_tensor({3}, DType::f64), true);
  BOOST_CHECK_EXCEPTION(backward(scale(x, 2)), ShapeError,
                        says("backward: root must have one element, shape is [3]"));
  BOOST_CHECK_EXCEPTION(backward(Variables{x}, {}), Error, says("1 roots, 0 gradients"));
  BOOST_CHECK_THROW(backward({scale(x, 2)}, {Tensor::zeros({2})}), ShapeError);
  const Variable unused = scale(x, 9), used = scale(x, 2);
  backward({unused, used, used}, {Tensor(), Tensor::full({3}, 1, {DType::f64, {}}),
                                  Tensor::full({3}, 0.5, {DType::f64, {}})});
  BOOST_TEST(doubles(x.grad()) == std::vector<double>({3, 3, 3}));
  // A leaf may be a root itself; a root without gradient asks for nothing.
  const Variable w = leaf(4);
  backward(w, 0.25);
  BOOST_TEST(w.grad().item() == 0.25);
  backward(Variable(Tensor::full({1}, 1)));
}

BOOST_AUTO_TEST_CASE(no_grad_records_nothing) {
  const Variable x = leaf(2);
  BOOST_TEST(grad_enabled());
  try {
    const NoGrad outer;
    {
      const NoGrad inner;
      BOOST_TEST(!grad_enabled());
    }
    BOOST_TEST(!grad_enabled());
    const Variable y = mul(x, x);
    BOOST_TEST(!y.requires_grad());
    BOOST_TEST(y.is_leaf());
    throw Error("leaves the mode behind");
  } catch (const Error&) {
  }
  BOOST_TEST(grad_enabled());
  BOOST_TEST(mul(x, x).requires_grad());
  BOOST_TEST(!mul(x.detach(), x.detach()).requires_grad());
  BOOST_TEST(x.detach().data().shares_storage_with(x.data()));
}

BOOST_AUTO_TEST_CASE(leaves_and_their_data) {
  const Variable x = leaf(2), copy = x;
  BOOST_TEST(x.is_leaf());
  BOOST_TEST(!x.grad().defined());
  BOOST_TEST(copy.id() == x.id());
  BOOST_TEST(leaf(2).id() != x.id());
  copy.set_data(Tensor::full({1}, 7, {DType::f64, {}}));
  BOOST_TEST(x.item() == 7);
  BOOST_CHECK_THROW(x.set_data(Tensor::zeros({2}, {DType::f64, {}})), ShapeError);
  BOOST_CHECK_THROW(x.set_data(Tensor::zeros({1})), DTypeError);
  const Variable y = mul(x, x);
  BOOST_TEST(!y.is_leaf());
  BOOST_CHECK_EXCEPTION(y.grad(), Error, says("grad: only leaves keep a gradient"));
  BOOST_CHECK_THROW(y.set_data(x.data()), Error);
  BOOST_CHECK_EXCEPTION(Variable(Tensor::zeros({2}, {DType::i32, {}}), true), DTypeError,
                        says("Variable: a i32 tensor has no gradient"));
  BOOST_CHECK_EXCEPTION(Variable().data(), Error, says("Variable: undefined"));
  BOOST_TEST(!Variable().requires_grad());
  BOOST_CHECK_THROW(Variable(Tensor(), false), Error);
}

BOOST_AUTO_TEST_CASE(gradients_go_into_a_flat_buffer_set_before) {
  const Tensor flat = Tensor::full({2 * 3 + 3 + 4 * 3}, 100, {DType::f64, {}});
  const Variable w(random_tensor({2, 3}, DType::f64, 1), true);
  const Variable gain(random_tensor({3}, DType::f64, 2), true);
  const Variable table(random_tensor({4, 3}, DType::f64, 3), true);
  const auto loss = [](const Variable& a, const Variable& b, const Variable& c) {
    const Variable x = embedding(c, Tensor::from<int32_t>({3, 0, 3}));
    return sum(linear(rms_norm(x, b, 1e-6), a));
  };
  w.set_grad(flat.slice(0, 0, 6).view({2, 3}));
  gain.set_grad(flat.slice(0, 6, 9));
  table.set_grad(flat.slice(0, 9, 21).view({4, 3}));
  const Variable w2(w.data(), true), gain2(gain.data(), true), table2(table.data(), true);
  backward(loss(w, gain, table));
  backward(loss(w2, gain2, table2));
  std::vector<double> expected;
  for (const Variable& v : {w2, gain2, table2})
    for (const double g : doubles(v.grad())) expected.push_back(100 + g);
  check_close(flat, Tensor::from(expected), 1e-14, 0);
  BOOST_TEST(w.grad().shares_storage_with(flat));

  BOOST_CHECK_THROW(w.set_grad(Tensor::zeros({3, 2}, {DType::f64, {}})), ShapeError);
  BOOST_CHECK_THROW(w.set_grad(Tensor::zeros({2, 3})), DTypeError);
  BOOST_CHECK_EXCEPTION(w.set_grad(Tensor::zeros({3, 2}, {DType::f64, {}}).transpose(0, 1)),
                        ShapeError, says("set_grad: buffer of shape [2, 3] must be contiguous"));
  BOOST_CHECK_THROW(w.detach().set_grad(flat), Error);
  BOOST_CHECK_THROW(mul(w, w).set_grad(Tensor::zeros({2, 3}, {DType::f64, {}})), Error);
  const Variable half(random_tensor({2}, DType::bf16), true);
  BOOST_CHECK_THROW(half.set_grad(Tensor::zeros({2}, {DType::bf16, {}})), DTypeError);
  half.set_grad(Tensor::zeros({2}));
}

BOOST_AUTO_TEST_CASE(a_sink_is_the_leaf_buffer_or_a_fresh_one) {
  const Variable w = leaf(1);
  const GradSink direct(w);
  BOOST_TEST(direct.buffer().shares_storage_with(w.grad()));
  BOOST_TEST(!direct.result().defined());
  const GradSink fresh(mul(w, w));
  BOOST_TEST(fresh.result().item() == 0);
}

BOOST_AUTO_TEST_CASE(ready_hooks_fire_once_with_the_whole_gradient) {
  const Variable x = leaf(3), w = leaf(2), unused = leaf(1);
  std::vector<double> seen_x, seen_w;
  int stray = 0;
  x.set_ready_hook([&] { seen_x.push_back(x.grad().item()); });
  w.set_ready_hook([&] { seen_w.push_back(w.grad().item()); });
  unused.set_ready_hook([&] { ++stray; });
  for (int pass = 1; pass <= 2; ++pass) {
    // x x w w: dx = 2 x w^2 = 24, dw = 2 x^2 w = 36; accumulated over passes.
    backward(mul(mul(mul(x, w), w), x));
    BOOST_TEST(seen_x.size() == size_t(pass));
    BOOST_TEST(seen_w.size() == size_t(pass));
    BOOST_TEST(seen_x.back() == 24 * pass);
    BOOST_TEST(seen_w.back() == 36 * pass);
  }
  BOOST_TEST(stray == 0);
  BOOST_CHECK_THROW(mul(x, w).set_ready_hook([] {}), Error);
  BOOST_CHECK_THROW(x.detach().set_ready_hook([] {}), Error);
}

BOOST_AUTO_TEST_CASE(ready_hooks_fire_for_zero_gradients_and_leaf_roots) {
  const Variable x = leaf(3), w = leaf(2);
  int fired_x = 0, fired_w = 0;
  x.set_ready_hook([&] { ++fired_x; });
  w.set_ready_hook([&] { ++fired_w; });
  // w only reaches a root whose gradient is undefined.
  const Tensor one = Tensor::full({1}, 1, {DType::f64, {}});
  backward({mul(x, x), scale(mul(w, w), 2)}, {one, Tensor()});
  BOOST_TEST(fired_x == 1);
  BOOST_TEST(fired_w == 1);
  // A leaf that is a root, twice and together with a function of it, is ready once.
  backward({x, x, scale(x, 2)}, {one, one, one});
  BOOST_TEST(fired_x == 2);
  BOOST_TEST(x.grad().item() == 6 + 4);
  backward(w);
  BOOST_TEST(fired_w == 2);
}

BOOST_AUTO_TEST_CASE(record_checks_what_a_function_returns) {
  const Variable x = leaf(3);
  int calls = 0;
  const auto make = [&](size_t count) {
    return record("odd", {x.data(), Tensor::from<int32_t>({1})}, {x},
                  [&, count](const std::vector<Tensor>& g) {
                    ++calls;
                    BOOST_TEST(g.size() == 2u);
                    BOOST_TEST(!g[1].defined());
                    return std::vector<Tensor>(count, g[0]);
                  });
  };
  const Variables good = make(1);
  BOOST_TEST(good[0].requires_grad());
  BOOST_TEST(!good[1].requires_grad());
  backward(good[0]);
  BOOST_TEST(calls == 1);
  BOOST_TEST(x.grad().item() == 1);
  BOOST_CHECK_EXCEPTION(backward(make(2)[0]), Error,
                        says("backward: 'odd' returned 2 gradients for 1 inputs"));
}

BOOST_AUTO_TEST_CASE(memory_is_released_as_backward_goes) {
  constexpr int kLength = 40;
  const Variable x(Tensor::full({1000}, 1, {DType::f64, {}}), true);
  x.set_grad(Tensor::zeros({1000}, {DType::f64, {}}));
  const int64_t before = live_bytes();
  Variable loss;
  {
    Variable y = x;
    for (int i = 0; i < kLength; ++i) y = mul(y, y);
    loss = sum(y);
  }
  const int64_t block = x.data().bytes(), forward = live_bytes();
  BOOST_TEST(forward - before >= (kLength - 1) * block);
  allocator().reset_peak();
  backward(loss);
  // At its height backward holds the whole forward, the gradient of the last node's output, the two
  // of its inputs and their sum.
  BOOST_TEST(int64_t(allocator().stats().peak_live_bytes) - forward <= 5 * block);
  loss = Variable();
  BOOST_TEST(live_bytes() == before);
}

BOOST_AUTO_TEST_CASE(a_kept_variable_keeps_no_saved_tensors) {
  const Variable x = leaf(3);
  const int64_t before = live_bytes();
  const int64_t block = 1000 * 8;
  Variable y;
  {
    const Tensor saved = Tensor::zeros({1000}, {DType::f64, {}});
    y = record("saving", Tensor::zeros({1}, {DType::f64, {}}), {x},
               [saved](const std::vector<Tensor>& g) { return g; });
  }
  BOOST_TEST(live_bytes() >= before + block);
  backward(y);
  BOOST_TEST(y.defined());
  BOOST_TEST(live_bytes() < before + block);
}

BOOST_AUTO_TEST_CASE(live_memory_falls_from_node_to_node) {
  const Variable x(Tensor::full({1000}, 1, {DType::f64, {}}), true);
  std::vector<int64_t> live;
  Variable y = x;
  for (int i = 0; i < 10; ++i) {
    y = mul(y, y);
    y = record("probe", y.data(), {y}, [&](const std::vector<Tensor>& g) {
      live.push_back(live_bytes());
      return g;
    });
  }
  y = sum(y);
  backward(y);
  BOOST_REQUIRE(live.size() == 10u);
  for (size_t i = 1; i < live.size(); ++i) BOOST_TEST(live[i] < live[i - 1]);
}

BOOST_AUTO_TEST_CASE(a_graph_dropped_without_backward_is_freed) {
  const Variable x(Tensor::full({1}, 1, {DType::f64, {}}), true);
  const int64_t before = live_bytes();
  {
    // Long enough that freeing it node by node in nested calls would overflow the stack.
    Variable y = x;
    for (int i = 0; i < 200000; ++i) y = scale(y, 1);
    BOOST_TEST(live_bytes() > before);
  }
  BOOST_TEST(live_bytes() == before);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
