// Token dispatch over ranks: where rows go, and gradients through the exchange.
#include "autograd/elementwise.h"
#include "moe/experts.h"
#include "moe/token_dispatch.h"
#include "tensor/routing.h"
#include "tests/moe/ranks.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

constexpr int64_t kHidden = 6, kExperts = 4;

/// One MoE layer's experts on given choices.
struct Layer {
  dist::World world{number_of_ranks()};
  int64_t rank = world.world().rank();
  int64_t local = kExperts / world.world().size();
  ParameterStore store{DType::f64, {}};
  Experts experts{store, "experts", rank* local, local, kHidden, 5, 0.5};
  Tensor indices;
  Variable x, weights;

  /// indices [T, K] of this rank
  Layer(const std::vector<int32_t>& chosen, int64_t top_k)
      : indices(Tensor::from(chosen, {int64_t(chosen.size()) / top_k, top_k})) {
    store.initialize(1);
    const int64_t T = indices.dim(0);
    x = Variable(random_tensor({T, kHidden}, DType::f64, uint64_t(rank) + 1), true);
    Tensor gates = random_tensor({T, top_k}, DType::f64, uint64_t(rank) + 11);
    weights = Variable(gates, true);
  }

  Variable forward() const {
    const TokenDispatch dispatch(indices, kExperts, world.expert_parallel());
    return dispatch.combine(experts(dispatch.dispatch(x), dispatch.offsets()), weights);
  }
  /// Sum over all ranks' outputs, each with its own factor; this rank's part.
  Variable loss() const {
    const Variable y = forward();
    return sum(mul(y, Variable(random_tensor(y.shape(), DType::f64, uint64_t(rank) + 21))));
  }
};

/// The pattern of choices of each rank; the last ranks may have no token at all.
std::vector<int32_t> choices(int64_t top_k, int64_t rank) {
  if (top_k == 1) {  // on 2 ranks rows go (3, 0) and (1, 2)
    const std::vector<std::vector<int32_t>> pattern = {{0, 1, 0}, {1, 2, 3}, {}, {3}};
    return pattern[size_t(rank)];
  }
  const std::vector<std::vector<int32_t>> pattern = {{0, 1, 1, 0}, {1, 2, 3, 2}, {2, 0}, {}};
  return pattern[size_t(rank)];
}

}  // namespace

BOOST_AUTO_TEST_SUITE(token_dispatch)

BOOST_AUTO_TEST_CASE(gradients_through_the_exchange_match_finite_differences) {  // CASE 22
  for (const int64_t top_k : {1, 2}) {
    const int64_t rank = dist::World(1).world().rank();
    Layer layer(choices(top_k, rank), top_k);
    const Variable loss = layer.loss();
    backward(loss);
    BOOST_CHECK_THROW(backward(loss), Error);
    const auto total = [&] {
      const NoGrad no_grad;
      return dist::all_reduce_sum(layer.loss().item(), layer.world.world());
    };
    std::vector<Variable> leaves = {layer.x, layer.weights};
    for (const Parameter* p : layer.store.all()) leaves.push_back(p->value);
    for (int64_t owner = 0; owner < layer.world.world().size(); ++owner) {
      for (size_t l = 0; l < leaves.size(); ++l) {
        for (uint64_t s = 0; s < 6; ++s) {
          const int64_t n = leaves[l].data().numel();
          const bool mine = owner == rank && n > 0;
          const int64_t at = mine ? int64_t(Random(1, "pick").below(s, uint64_t(n))) : 0;
          double* value = mine ? leaves[l].data().data<double>() + at : nullptr;
          const double before = mine ? *value : 0, step = 1e-5;
          if (mine) *value = before + step;
          const double up = total();
          if (mine) *value = before - step;
          const double down = total();
          if (!mine) continue;
          *value = before;
          const double numeric = (up - down) / (2 * step);
          const double analytic =
              leaves[l].grad().defined() ? leaves[l].grad().data<double>()[at] : 0.0;
          BOOST_CHECK_MESSAGE(std::abs(numeric - analytic) <= 1e-8 * (1 + std::abs(analytic)),
                              "leaf " << l << "[" << at << "], top_k " << top_k << ": analytic "
                                      << analytic << ", numeric " << numeric);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(rows_arrive_sorted_by_expert_and_come_back_to_their_tokens) {
  const dist::World world(number_of_ranks());
  const int64_t rank = world.world().rank(), ranks = world.world().size();
  const int64_t local = kExperts / ranks, T = 5 + rank;
  const Tensor indices = topk(random_tensor({T, kExperts}, DType::f32, uint64_t(rank) + 1), 2);
  // Each token carries its number and its rank.
  std::vector<double> values;
  for (int64_t t = 0; t < T; ++t) values.insert(values.end(), {double(t), double(rank)});
  const Variable x(Tensor::from(values, {T, 2}));
  const TokenDispatch dispatch(indices, kExperts, world.expert_parallel());
  const Variable rows = dispatch.dispatch(x);
  BOOST_CHECK_EQUAL(dispatch.offsets().size(), size_t(local + 1));
  BOOST_CHECK_EQUAL(dispatch.offsets().back(), rows.dim(0));

  // What each expert must receive: slots of all ranks in rank order, within a rank in token order.
  std::vector<double> expected;
  for (int64_t e = rank * local; e < (rank + 1) * local; ++e) {
    BOOST_CHECK_EQUAL(dispatch.offsets()[size_t(e - rank * local)], int64_t(expected.size()) / 2);
    for (int64_t r = 0; r < ranks; ++r) {
      const Tensor other = topk(random_tensor({5 + r, kExperts}, DType::f32, uint64_t(r) + 1), 2);
      for (int64_t slot = 0; slot < other.numel(); ++slot) {
        if (other.data<int32_t>()[slot] == e)
          expected.insert(expected.end(), {double(slot / 2), double(r)});
      }
    }
  }
  BOOST_CHECK(doubles(rows.data()) == expected);

  const Tensor gates = Tensor::from(std::vector<double>(size_t(2 * T), 0.5), {T, 2});
  check_same_bits(dispatch.combine(rows, Variable(gates)).data(), x.data());
}

BOOST_AUTO_TEST_CASE(no_rows_on_any_rank) {  // CASE 28
  Layer layer({}, 2);
  const Variable loss = layer.loss();
  BOOST_CHECK_EQUAL(loss.item(), 0);
  backward(loss);
  for (const Parameter* p : layer.store.all()) {
    if (p->value.grad().defined()) BOOST_CHECK_EQUAL(largest(p->value.grad()), 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
