#include "autograd/layers.h"

#include "autograd/elementwise.h"
#include "tests/autograd/gradient_check.h"

namespace smelt {
namespace {

using namespace testing;
using Variables = std::vector<Variable>;

BOOST_AUTO_TEST_SUITE(layers)

BOOST_AUTO_TEST_CASE(gradients_of_rms_norm) {
  for (const Shape& shape : {Shape{3, 5}, {1, 7}, {6, 1}, {1, 1}, {0, 4}, {4, 0}, {2, 3, 4}, {9}}) {
    for (const double eps : {1e-6, 0.5}) {
      // One element divided by its own size is a step function: differences say nothing.
      if (shape.back() == 1 && eps < 0.1) continue;
      check_gradients(single([=](const Variables& x) { return rms_norm(x[0], x[1], eps); }),
                      random_inputs({shape, {shape.back()}}));
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_add_rms_norm) {
  for (const Shape& shape : {Shape{3, 5}, {1, 7}, {6, 2}, {0, 4}, {4, 0}, {2, 3, 4}, {9}}) {
    for (const double alpha : {1.0, 0.5}) {
      check_gradients(
          [=](const Variables& x) { return add_rms_norm(x[0], x[1], alpha, x[2], 1e-3); },
          random_inputs({shape, shape, {shape.back()}}));
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_rotary) {
  for (const Shape& shape : {Shape{5, 3, 4}, {1, 1, 2}, {3, 1, 6}, {0, 2, 4}, {4, 0, 2}}) {
    const Tensor positions = random_indices({shape[0]}, 9);
    check_gradients(single([&](const Variables& x) {
                      const DType dtype = accumulation_dtype(x[0].dtype());
                      return rotary(x[0], positions, rotary_table(9, shape[2], 10000, dtype));
                    }),
                    random_inputs({shape}));
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_swiglu) {
  for (const Shape& shape : {Shape{3, 10}, {1, 2}, {5, 2}, {0, 4}, {4, 0}})
    check_gradients(single([](const Variables& x) { return swiglu(x[0]); }),
                    random_inputs({shape}));
}

BOOST_AUTO_TEST_CASE(gradients_of_attention) {
  struct Case {
    int64_t batch, queries, keys, heads, kv_heads, head_dim;
  };
  for (const Case& c : {Case{2, 5, 5, 4, 2, 3},
                        {1, 3, 7, 3, 1, 4},
                        {1, 1, 1, 1, 1, 1},
                        {3, 4, 6, 2, 2, 5},
                        {0, 3, 3, 2, 1, 2},
                        {2, 0, 3, 2, 1, 2},
                        {2, 3, 0, 2, 1, 2}}) {
    // Ranges of every kind: empty, one key, all keys, starting and ending anywhere.
    std::vector<int32_t> begin, end;
    for (int64_t i = 0; i < c.batch * c.queries; ++i) {
      const int64_t low = (3 * i) % (c.keys + 1), high = i % 4 == 0 ? c.keys : low + i % 3;
      begin.push_back(int32_t(low));
      end.push_back(int32_t(std::min(std::max(low, high), c.keys)));
    }
    const Tensor first = Tensor::from(begin, {c.batch, c.queries});
    const Tensor last = Tensor::from(end, {c.batch, c.queries});
    check_gradients(
        single([&](const Variables& x) { return attention(x[0], x[1], x[2], first, last, 0.6); }),
        random_inputs({{c.batch, c.queries, c.heads, c.head_dim},
                       {c.batch, c.keys, c.kv_heads, c.head_dim},
                       {c.batch, c.keys, c.kv_heads, c.head_dim}}));
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_attention_over_parts_of_one_projection) {
  // As the module uses it: keys and values are column views of one product.
  const Tensor begin = Tensor::from<int32_t>({0, 0, 2, 2, 0, 1}, {2, 3});
  const Tensor end = Tensor::from<int32_t>({1, 2, 3, 3, 2, 3}, {2, 3});
  check_gradients(single([&](const Variables& x) {
                    const Variables kv = split_columns(x[1], {4, 4});
                    return attention(reshape(x[0], {2, 3, 2, 2}), reshape(kv[0], {2, 3, 2, 2}),
                                     reshape(kv[1], {2, 3, 2, 2}), begin, end, 0.7);
                  }),
                  random_inputs({{6, 4}, {6, 8}}));
}

BOOST_AUTO_TEST_CASE(gradients_of_embedding) {
  struct Case {
    int64_t tokens, vocab, width;
  };
  for (const Case& c : {Case{7, 4, 3}, {1, 1, 1}, {5, 9, 1}, {0, 3, 2}, {3, 2, 0}}) {
    const Tensor ids = random_indices({c.tokens}, c.vocab);
    check_gradients(single([&](const Variables& x) { return embedding(x[0], ids); }),
                    random_inputs({{c.vocab, c.width}}));
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_linear_cross_entropy) {
  struct Case {
    int64_t width, vocab;
    std::vector<int32_t> targets;
  };
  const Case cases[] = {{3, 5, {0, 4, -1, 2, 2}},
                        {1, 7, {6}},
                        {4, 1, {0, 0}},
                        {3, 4, {}},
                        {3, 4, {-1, -1}},
                        {0, 4, {1, 3}},
                        {9, 33, {32, 0, -1, 7, 7, 7, 31}}};
  for (const Case& c : cases) {
    const Tensor targets = Tensor::from(c.targets);
    check_gradients(
        single([&](const Variables& x) { return linear_cross_entropy(x[0], x[1], targets); }),
        random_inputs({{targets.numel(), c.width}, {c.vocab, c.width}}));
  }
}

BOOST_AUTO_TEST_CASE(tokens_without_target_add_exact_zeros) {
  // CASES 5: a rank whose targets are all masked takes part with zeros, never with 0/0.
  const Variable x(random_tensor({3, 4}), true), w(random_tensor({5, 4}), true);
  const Variable loss = linear_cross_entropy(x, w, Tensor::full({3}, -1, {DType::i32, {}}));
  BOOST_TEST(loss.item() == 0);
  backward(loss, 0.5);
  for (const Variable& v : {x, w}) {
    BOOST_REQUIRE(v.grad().defined());
    for (const double g : doubles(v.grad())) BOOST_TEST(g == 0);
  }
}

BOOST_AUTO_TEST_CASE(the_sum_of_losses_is_free_of_the_split_into_batches) {
  // CASES 1: one target of loss a, three of loss b; the normaliser enters through the seed.
  const Tensor x = random_tensor({4, 3}, DType::f64, 1), w = random_tensor({6, 3}, DType::f64, 2);
  const Tensor targets = Tensor::from<int32_t>({5, 1, 0, 3});
  const Variable whole(w, true), parts(w, true);
  const Variable all = linear_cross_entropy(Variable(x), whole, targets);
  backward(all, 1.0 / 4);
  double total = 0;
  for (const auto& [begin, end] : {std::pair{0, 1}, {1, 4}}) {
    const Variable loss =
        linear_cross_entropy(Variable(x.slice(0, begin, end)), parts, targets.slice(0, begin, end));
    backward(loss, 1.0 / 4);
    total += loss.item() / 4;
  }
  BOOST_TEST(std::abs(total - all.item() / 4) < 1e-14);
  BOOST_TEST(relative_error(parts.grad(), whole.grad()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(without_gradient_mode_the_loss_is_the_same) {
  const Variable x(random_tensor({3, 4}), true), w(random_tensor({5, 4}), true);
  const Tensor targets = Tensor::from<int32_t>({1, -1, 4});
  const double loss = linear_cross_entropy(x, w, targets).item();
  const NoGrad no_grad;
  const Variable plain = linear_cross_entropy(x, w, targets);
  BOOST_TEST(plain.item() == loss);
  BOOST_TEST(!plain.requires_grad());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
