#include "tensor/routing.h"

#include <algorithm>
#include <numeric>

#include <boost/test/unit_test.hpp>

#include "tensor/allocator.h"
#include "tensor/rows.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

const Shape kShapes[] = {{0, 4}, {1, 1}, {3, 5}, {7, 64}, {9, 130}};

Tensor matrix(const std::vector<float>& values, Shape shape) {
  return Tensor::from(values, std::move(shape));
}
Tensor indices(const std::vector<int32_t>& values, Shape shape) {
  return Tensor::from(values, std::move(shape));
}

Tensor naive_softmax(const Tensor& x) {
  std::vector<double> p = doubles(x);
  const auto E = size_t(x.dim(1));
  for (size_t begin = 0; begin < p.size(); begin += E) {
    double sum = 0;
    for (size_t e = 0; e < E; ++e) sum += p[begin + e] = std::exp(p[begin + e]);
    for (size_t e = 0; e < E; ++e) p[begin + e] /= sum;
  }
  return Tensor::from(p, x.shape());
}

/// Stable sort by descending score, NaN last.
std::vector<int32_t> naive_topk(const std::vector<double>& scores, int64_t k) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const double x = scores[size_t(a)], y = scores[size_t(b)];
    return std::isnan(y) ? !std::isnan(x) : x > y;
  });
  order.resize(size_t(k));
  return order;
}

void check_topk(const Tensor& scores, int64_t k, const Tensor& bias = {}) {
  const std::vector<double> s = doubles(scores);
  const auto E = size_t(scores.dim(1));
  std::vector<int32_t> expected;
  for (size_t begin = 0; begin < s.size(); begin += E) {
    std::vector<double> row(s.begin() + int64_t(begin), s.begin() + int64_t(begin + E));
    if (bias.defined()) {  // added in the dtype of the scores
      for (size_t e = 0; e < E; ++e) {
        const double b = doubles(bias)[e];
        row[e] = scores.dtype() == DType::f32 ? double(float(row[e]) + float(b)) : row[e] + b;
      }
    }
    const std::vector<int32_t> best = naive_topk(row, k);
    expected.insert(expected.end(), best.begin(), best.end());
  }
  check_same_bits(topk(scores, k, bias), Tensor::from(expected, {scores.dim(0), k}));
}

BOOST_AUTO_TEST_SUITE(routing)

BOOST_AUTO_TEST_CASE(softmax_and_its_gradient_match_a_naive_reference) {
  for (const DType dtype : kFullPrecision) {
    for (const Shape& shape : kShapes) {
      BOOST_TEST_CONTEXT(dtype << " " << to_string(shape)) {
        const Tensor x = random_tensor(shape, dtype, 1, 3), dy = random_tensor(shape, dtype, 2);
        const Tensor p = softmax(x);
        check_close(p, naive_softmax(x), tolerance::sum(dtype, shape[1], 2));
        std::vector<double> expected = doubles(dy);
        const std::vector<double> q = doubles(p);
        const auto E = size_t(shape[1]);
        for (size_t begin = 0; begin < q.size(); begin += E) {
          double dot = 0;
          for (size_t e = begin; e < begin + E; ++e) dot += q[e] * expected[e];
          for (size_t e = begin; e < begin + E; ++e) expected[e] = q[e] * (expected[e] - dot);
        }
        check_close(softmax_backward(dy, p), Tensor::from(expected, shape),
                    tolerance::sum(dtype, shape[1], 4));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(softmax_survives_large_logits_and_shows_nan) {
  const float inf = float(kInfinity);
  check_close(
      softmax(matrix({1000, 999, -inf, -1e30f, -1000, -1000}, {2, 3})),
      Tensor::from(std::vector<double>{0.7310585786300049, 0.2689414213699951, 0, 0, 0.5, 0.5},
                   {2, 3}),
      2e-7, 0);
  for (const double p : doubles(softmax(matrix({1, float(kNaN), 2}, {1, 3}))))
    BOOST_TEST(std::isnan(p));
}

BOOST_AUTO_TEST_CASE(equal_logits_have_equal_probabilities_wherever_they_stand) {
  // Also when a row ends in a part of a vector.
  for (const int64_t E : {3, 7, 8, 9, 15, 17, 31, 67}) {
    const Tensor x = Tensor::full({4, E}, -1.7);
    x.slice(1, E / 2, E / 2 + 1).fill_(0.9);  // the maximum
    const std::vector<float> p = softmax(x).to_vector<float>();
    for (size_t i = 0; i < p.size(); ++i) {
      if (int64_t(i) % E == E / 2) continue;
      BOOST_REQUIRE(p[i] == p[E / 2 == 0 ? 1 : 0]);
    }
  }
}

BOOST_AUTO_TEST_CASE(topk_matches_a_stable_sort) {
  for (const DType dtype : kFullPrecision) {
    for (const int64_t E : {1, 2, 31, 32, 33, 64, 200, 1024}) {
      for (const int64_t k : {int64_t{1}, int64_t{2}, int64_t{8}, E}) {
        if (k > E) continue;
        BOOST_TEST_CONTEXT(dtype << " E " << E << " k " << k) {
          const Tensor scores = random_tensor({5, E}, dtype, uint64_t(E));
          check_topk(scores, k);
          check_topk(strided(scores), k);
          check_topk(scores, k, random_tensor({E}, dtype, 9));
          // Few distinct values, so many ties.
          check_topk(random_indices({5, E}, 3, uint64_t(E)).to(dtype), k);
        }
      }
    }
  }
  BOOST_TEST(topk(Tensor::zeros({0, 4}), 2).numel() == 0);
}

BOOST_AUTO_TEST_CASE(topk_ranks_nan_lowest_and_signed_zeros_equal) {
  const float nan = float(kNaN), inf = float(kInfinity);
  const Tensor x = matrix({nan, -inf, nan, -nan,  //
                           -0.0f, 0.0f, -1, nan,  //
                           nan, nan, nan, nan,    //
                           inf, -inf, 3e38f, inf},
                          {4, 4});
  const Tensor expected = indices({1, 0, 2, 0, 1, 2, 0, 1, 2, 0, 3, 2}, {4, 3});
  check_same_bits(topk(x, 3), expected);
  check_same_bits(topk(x.to(DType::f64), 3), expected);
  check_topk(x, 4);
}

BOOST_AUTO_TEST_CASE(the_bias_steers_selection_alone) {
  const Tensor scores = matrix({0.5f, 0.3f, 0.2f}, {1, 3}), bias = matrix({-1, 0, 0.2f}, {3});
  const Tensor chosen = topk(scores, 2, bias);
  check_same_bits(chosen, indices({2, 1}, {1, 2}));
  check_close(topk_weights(scores, chosen, false), matrix({0.2f, 0.3f}, {1, 2}), 0, 0);
}

// Case 16: logits are f32; in bf16 the two would tie.
BOOST_AUTO_TEST_CASE(logits_a_bf16_step_apart_are_told_apart) {
  const Tensor logits = matrix({1.000f, 1.003f}, {1, 2});
  BOOST_TEST(topk(softmax(logits), 1).item() == 1);
  BOOST_TEST(topk(logits, 1).item() == 1);
  const Tensor rounded = logits.to(DType::bf16);
  BOOST_TEST(topk(rounded.to(DType::f32), 1).item() == 0);
  BOOST_CHECK_EXCEPTION(topk(rounded, 1), DTypeError,
                        says("topk: scores must be f32 or f64, is bf16"));
  BOOST_CHECK_EXCEPTION(softmax(rounded), DTypeError,
                        says("softmax: x must be f32 or f64, is bf16"));
}

// Case 17: ties go to the lowest index, on any number of threads.
BOOST_AUTO_TEST_CASE(ties_go_to_the_lowest_index) {
  for (const int64_t T : {8, 8192}) {
    const auto route = [T] {
      const Tensor probs = softmax(Tensor::zeros({T, 4}));
      const Tensor chosen = topk(probs, 2);
      return std::vector<Tensor>{chosen, topk_weights(probs, chosen, false),
                                 topk_weights(probs, chosen, true)};
    };
    check_same_bits_for_any_threads(route);
    const std::vector<Tensor> result = route();
    const std::vector<int32_t> chosen = result[0].to_vector<int32_t>();
    for (size_t i = 0; i < chosen.size(); ++i) BOOST_REQUIRE(chosen[i] == int32_t(i % 2));
    check_same_bits(result[1], Tensor::full({T, 2}, 0.25));
    check_same_bits(result[2], Tensor::full({T, 2}, 0.5));
  }
}

// Case 18: gates with and without renormalising.
BOOST_AUTO_TEST_CASE(gates_are_probabilities_or_renormalised_ones) {
  const Tensor probs = softmax(matrix({2, 1, 0}, {1, 3}));
  const Tensor chosen = topk(probs, 2);
  check_same_bits(chosen, indices({0, 1}, {1, 2}));
  check_close(topk_weights(probs, chosen, false), matrix({0.6652f, 0.2447f}, {1, 2}), 0, 5e-5);
  check_close(topk_weights(probs, chosen, true), matrix({0.7311f, 0.2689f}, {1, 2}), 0, 5e-5);
}

BOOST_AUTO_TEST_CASE(the_gradient_of_gates_agrees_with_finite_differences) {
  const Tensor probs = softmax(random_tensor({4, 6}, DType::f64, 1));
  const Tensor chosen = topk(probs, 3), dw = random_tensor({4, 3}, DType::f64, 2);
  const std::vector<double> d = doubles(dw);
  for (const bool normalize : {false, true}) {
    const std::vector<double> grad = doubles(topk_weights_backward(dw, probs, chosen, normalize));
    constexpr double h = 1e-6;
    for (size_t i = 0; i < grad.size(); ++i) {
      const auto loss = [&](double step) {
        std::vector<double> p = doubles(probs);
        p[i] += step;
        const auto w = doubles(topk_weights(Tensor::from(p, probs.shape()), chosen, normalize));
        return std::inner_product(w.begin(), w.end(), d.begin(), 0.0);
      };
      BOOST_TEST(std::abs((loss(h) - loss(-h)) / (2 * h) - grad[i]) < 1e-8);
    }
  }
}

// Case 19: a single renormalised gate is the constant 1 and gives the router no gradient.
BOOST_AUTO_TEST_CASE(a_single_renormalised_gate_has_no_gradient) {
  const Tensor probs = softmax(random_tensor({5, 4})), chosen = topk(probs, 1);
  const Tensor dw = Tensor::full({5, 1}, 1);
  check_close(topk_weights_backward(dw, probs, chosen, true), Tensor::zeros({5, 4}), 0, 1e-7);
  double total = 0;
  for (const double g : doubles(topk_weights_backward(dw, probs, chosen, false))) total += g;
  BOOST_TEST(total == 5);
}

BOOST_AUTO_TEST_CASE(counts_and_segment_sums_match_a_naive_reference) {
  const int64_t T = 12, E = 5, K = 2;
  const Tensor chosen = random_indices({T, K}, E, 3);
  const std::vector<int32_t> index = chosen.to_vector<int32_t>();
  for (const DType dtype : kFullPrecision) {
    const Tensor probs = softmax(random_tensor({T, E}, dtype));
    const std::vector<double> p = doubles(probs);
    for (const int64_t segments : {1, 3, 12}) {
      const auto length = size_t(T / segments);
      std::vector<double> counts(size_t(segments * E));
      for (size_t s = 0; s < index.size(); ++s)
        ++counts[s / size_t(K) / length * size_t(E) + size_t(index[s])];
      const Tensor load = expert_counts(chosen, E, segments);
      check_close(load, Tensor::from(counts, {segments, E}), 0, 0);
      BOOST_TEST(load.dtype() == DType::f64);
      check_same_bits(expert_counts(strided(chosen), E, segments), load);
      double dot = 0;
      std::vector<double> rows(p.size());
      for (size_t i = 0; i < p.size(); ++i) {
        const double l = counts[i / size_t(E) / length * size_t(E) + i % size_t(E)];
        dot += l * p[i];
        rows[i] = 0.5 * l;
      }
      BOOST_TEST(std::abs(segment_dot(probs, load).item() - dot) < 1e-12);
      for (const DType to : kFloating) {
        check_close(expand_segments(load, T, 0.5, to), Tensor::from(rows, {T, E}), 0, 0);
        BOOST_TEST(expand_segments(load, T, 0.5, to).dtype() == to);
      }
    }
  }
  check_close(expert_counts(indices({}, {0, 2}), 3, 1), Tensor::zeros({1, 3}), 0, 0);
  BOOST_TEST(segment_dot(Tensor::zeros({0, 3}), Tensor::zeros({1, 3}, {DType::f64, {}})).item() ==
             0);
}

/// E * sum f_i P_i over one segment, f the share of slots and P the mean probability.
double balance_loss(const Tensor& probs, const Tensor& chosen) {
  const int64_t E = probs.dim(1);
  const Tensor counts = expert_counts(chosen, E, 1);
  return double(E) / double(chosen.numel() * probs.dim(0)) * segment_dot(probs, counts).item();
}

// Case 10: f is the share of slots, so perfect balance is 1 for any top_k.
BOOST_AUTO_TEST_CASE(even_routing_has_a_balance_loss_of_one) {
  const Tensor probs = softmax(Tensor::zeros({4, 4}));
  const Tensor chosen = indices({0, 1, 2, 3, 0, 1, 2, 3}, {4, 2});
  check_close(expert_counts(chosen, 4, 1), Tensor::full({1, 4}, 2), 0, 0);
  BOOST_TEST(balance_loss(probs, chosen) == 1.0);
}

// Case 11: probabilities enter the loss once through softmax, not twice.
BOOST_AUTO_TEST_CASE(the_balance_loss_uses_the_softmax_once) {
  const Tensor probs = softmax(matrix({2, 0}, {1, 2}));
  BOOST_TEST(std::abs(balance_loss(probs, topk(probs, 1)) - 1.7616) < 5e-5);
}

BOOST_AUTO_TEST_CASE(z_loss_and_its_gradient_match_a_naive_reference) {
  for (const DType dtype : kFullPrecision) {
    for (const Shape& shape : kShapes) {
      BOOST_TEST_CONTEXT(dtype << " " << to_string(shape)) {
        const Tensor x = random_tensor(shape, dtype, 1, 3);
        const std::vector<double> a = doubles(x), p = doubles(naive_softmax(x));
        const auto E = size_t(shape[1]);
        double sum = 0;
        std::vector<double> gradient(a.size());
        for (size_t begin = 0; begin < a.size(); begin += E) {
          double total = 0;
          for (size_t e = begin; e < begin + E; ++e) total += std::exp(a[e]);
          const double lse = std::log(total);
          sum += lse * lse;
          for (size_t e = begin; e < begin + E; ++e) gradient[e] = 2 * lse * p[e];
        }
        const ZLoss z = router_z_loss(x);
        check_close(z.sum, Tensor::from(std::vector<double>{sum}),
                    tolerance::sum(dtype, shape[1], 200));
        check_close(z.gradient, Tensor::from(gradient, shape), tolerance::sum(dtype, shape[1], 20));
      }
    }
  }
  BOOST_TEST(std::isfinite(router_z_loss(matrix({1000, -1000}, {1, 2})).sum.item()));
}

BOOST_AUTO_TEST_CASE(slots_are_sorted_by_expert_and_keep_their_order) {
  const SlotOrder order = sort_slots(indices({2, 0, 2, 1, 0, 2}, {3, 2}), 4);
  check_same_bits(order.row_of_slot, indices({3, 0, 4, 2, 1, 5}, {3, 2}));
  check_same_bits(order.token_of_row, indices({0, 2, 1, 0, 1, 2}, {6}));
  BOOST_TEST(order.tokens_per_expert == std::vector<int64_t>({2, 1, 3, 0}),
             boost::test_tools::per_element());
  const SlotOrder none = sort_slots(indices({}, {0, 2}), 3);
  BOOST_TEST(none.tokens_per_expert == std::vector<int64_t>({0, 0, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(sort_slots(indices({}, {3, 0}), 2).token_of_row.numel() == 0);
}

BOOST_AUTO_TEST_CASE(many_slots_match_a_stable_sort) {
  // More than one block of the counting sort, not a multiple of its size.
  const int64_t T = 13001, K = 3, E = 37;
  const Tensor chosen = random_indices({T, K}, E);
  const std::vector<int32_t> expert = chosen.to_vector<int32_t>();
  std::vector<int32_t> slots(expert.size());
  std::iota(slots.begin(), slots.end(), 0);
  std::stable_sort(slots.begin(), slots.end(),
                   [&](int32_t a, int32_t b) { return expert[size_t(a)] < expert[size_t(b)]; });
  std::vector<int32_t> row(slots.size()), token(slots.size());
  for (size_t r = 0; r < slots.size(); ++r) {
    row[size_t(slots[r])] = int32_t(r);
    token[r] = slots[r] / int32_t(K);
  }
  const SlotOrder order = sort_slots(strided(chosen), E);
  check_same_bits(order.row_of_slot, indices(row, {T, K}));
  check_same_bits(order.token_of_row, indices(token, {T * K}));
  const std::vector<double> counts = doubles(expert_counts(chosen, E, 1));
  BOOST_TEST(order.tokens_per_expert == std::vector<int64_t>(counts.begin(), counts.end()),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(results_do_not_depend_on_the_number_of_threads) {
  const Tensor x = random_tensor({3000, 67}), dy = random_tensor({3000, 67}, DType::f32, 2);
  check_same_bits_for_any_threads([&] {
    const Tensor p = softmax(x), chosen = topk(p, 8);
    const Tensor w = topk_weights(p, chosen, true), load = expert_counts(chosen, 67, 3);
    const SlotOrder order = sort_slots(chosen, 67);
    const ZLoss z = router_z_loss(x);
    return std::vector<Tensor>{p,
                               chosen,
                               w,
                               load,
                               softmax_backward(dy, p),
                               topk_weights_backward(w, p, chosen, true),
                               segment_dot(p, load),
                               expand_segments(load, 3000, 0.1, DType::f32),
                               order.row_of_slot,
                               order.token_of_row,
                               z.sum,
                               z.gradient};
  });
}

// Case 53.
BOOST_AUTO_TEST_CASE(strided_inputs_give_the_bits_of_contiguous_ones) {
  const Tensor x = random_tensor({6, 10}), dy = random_tensor({6, 10}, DType::f32, 2);
  const Tensor p = softmax(x), chosen = topk(p, 3), w = topk_weights(p, chosen, true);
  check_same_bits(softmax(strided(x)), p);
  check_same_bits(softmax_backward(strided(dy), strided(p)), softmax_backward(dy, p));
  check_same_bits(topk_weights(strided(p), strided(chosen), true), w);
  check_same_bits(topk_weights_backward(strided(w), strided(p), strided(chosen), true),
                  topk_weights_backward(w, p, chosen, true));
  check_same_bits(router_z_loss(strided(x)).gradient, router_z_loss(x).gradient);
  const Tensor load = expert_counts(chosen, 10, 2);
  check_same_bits(segment_dot(strided(p), strided(load)), segment_dot(p, load));
  check_same_bits(expand_segments(strided(load), 6, 2, DType::f32),
                  expand_segments(load, 6, 2, DType::f32));
}

// Case 29: nothing reads memory that was never written, experts without tokens included.
BOOST_AUTO_TEST_CASE(poisoned_memory_changes_no_bit) {
  const auto route = [] {
    // Experts 1 and 3 take all tokens: 3 rows and 1 row.
    const Tensor logits = matrix({-9, 5, -9, 1, -9, 4, -9, 2, -9, 3, -9, 1, -9, 1, -9, 3}, {4, 4});
    const Tensor p = softmax(logits), chosen = topk(p, 1), x = random_tensor({4, 5});
    const Tensor w = topk_weights(p, chosen, false), load = expert_counts(chosen, 4, 2);
    const SlotOrder order = sort_slots(chosen, 4);
    BOOST_TEST(order.tokens_per_expert == std::vector<int64_t>({0, 3, 0, 1}),
               boost::test_tools::per_element());
    const Tensor rows = gather_rows(x, order.token_of_row);
    const Tensor y = combine_rows(rows, order.row_of_slot, w);
    const Tensor dw = combine_weights_grad(y, rows, order.row_of_slot);
    const Tensor dx = Tensor::zeros({4, 5});
    scatter_add_rows_(dx, order.token_of_row, rows);
    const Tensor dp = topk_weights_backward(dw, p, chosen, false);
    const ZLoss z = router_z_loss(logits);
    return std::vector<Tensor>{y,     rows,       dw,
                               dx,    dp,         softmax_backward(dp, p),
                               z.sum, z.gradient, segment_dot(p, load),
                               load,  w,          expand_segments(load, 4, 1, DType::f32)};
  };
  const std::vector<Tensor> clean = route();
  struct Poison {
    Poison() { allocator().set_poison(true); }
    ~Poison() { allocator().set_poison(false); }
  } poison;
  for (int step = 0; step < 3; ++step) {
    const std::vector<Tensor> poisoned = route();
    for (size_t i = 0; i < clean.size(); ++i) {
      BOOST_TEST_CONTEXT("result " << i) { check_same_bits(clean[i], poisoned[i]); }
    }
  }
}

BOOST_AUTO_TEST_CASE(refusals_name_the_argument_and_its_value) {
  const Tensor p = Tensor::zeros({6, 4}), chosen = indices({0, 1, 2, 3, 0, 1}, {6, 1});
  BOOST_CHECK_EXCEPTION(topk(p, 5), ShapeError,
                        says("topk: k must be in [1, 4] for scores [6, 4], is 5"));
  BOOST_CHECK_THROW(topk(p, 0), ShapeError);
  BOOST_CHECK_EXCEPTION(topk(p, 2, Tensor::zeros({5})), ShapeError,
                        says("topk: bias must be [4], shape is [5]"));
  BOOST_CHECK_EXCEPTION(softmax_backward(Tensor::zeros({6, 3}), p), ShapeError,
                        says("softmax_backward: shapes differ: [6, 3] and [6, 4]"));
  BOOST_CHECK_EXCEPTION(topk_weights(p, indices({0, 4}, {2, 1}), true), ShapeError,
                        says("topk_weights: probs [6, 4] and indices [2, 1] differ in tokens"));
  BOOST_CHECK_EXCEPTION(topk_weights(p, indices({0, 1, 2, 3, 4, 0}, {6, 1}), true), ShapeError,
                        says("topk_weights: indices[4] is 4, must be in [0, 4)"));
  BOOST_CHECK_EXCEPTION(topk_weights_backward(Tensor::zeros({6, 2}), p, chosen, true), ShapeError,
                        says("topk_weights_backward: dweights must be [6, 1], shape is [6, 2]"));
  BOOST_CHECK_EXCEPTION(expert_counts(chosen, 3, 1), ShapeError,
                        says("expert_counts: indices[3] is 3, must be in [0, 3)"));
  BOOST_CHECK_EXCEPTION(expert_counts(chosen, 4, 4), ShapeError,
                        says("expert_counts: 6 tokens do not divide into 4 equal segments"));
  BOOST_CHECK_THROW(expert_counts(chosen, 4, 0), ShapeError);
  BOOST_CHECK_EXCEPTION(segment_dot(p, Tensor::zeros({1, 3}, {DType::f64, {}})), ShapeError,
                        says("segment_dot: probs [6, 4] and load [1, 3] differ in experts"));
  BOOST_CHECK_EXCEPTION(segment_dot(p, Tensor::zeros({1, 4})), DTypeError,
                        says("segment_dot: load must be f64, is f32"));
  BOOST_CHECK_EXCEPTION(expand_segments(Tensor::zeros({4, 3}, {DType::f64, {}}), 6, 1, DType::f32),
                        ShapeError, says("6 tokens do not divide into 4 equal segments"));
  BOOST_CHECK_EXCEPTION(sort_slots(indices({0, 1, 2, -5}, {2, 2}), 3), ShapeError,
                        says("sort_slots: indices[3] is -5, must be in [0, 3)"));
  BOOST_CHECK_EXCEPTION(sort_slots(p, 4), DTypeError, says("sort_slots: indices must be i32"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
