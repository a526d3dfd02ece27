#include "nn/modules.h"

#include "autograd/elementwise.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

BOOST_AUTO_TEST_SUITE(modules)

BOOST_AUTO_TEST_CASE(linear_multiplies_by_its_transposed_weight) {
  ParameterStore store(DType::f64, {});
  const Linear layer(store, "proj.weight", 3, 2, 0.02);
  layer.weight().data().copy_(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  const Variable y = layer(Variable(Tensor::from<double>({1, 0, -1}, {1, 3})));
  BOOST_TEST(doubles(y.data()) == std::vector<double>({-2, -2}), boost::test_tools::per_element());
  const Parameter& p = *store.all()[0];
  BOOST_TEST(p.name == "proj.weight");
  BOOST_TEST(p.pieces.size() == 1u);
  BOOST_TEST(p.pieces[0].name == "proj.weight");
  BOOST_TEST(p.decay);
}

BOOST_AUTO_TEST_CASE(parts_lie_below_each_other_under_their_own_names) {
  ParameterStore together(DType::f64, {}), apart(DType::f64, {});
  const Linear both(together, "kv", 3, {{"k.weight", 2}, {"v.weight", 1}}, 0.5);
  const Linear k(apart, "k.weight", 3, 2, 0.5), v(apart, "v.weight", 3, 1, 0.5);
  together.initialize(5);
  apart.initialize(5);
  check_same_bits(both.weight().data().slice(0, 0, 2), k.weight().data());
  check_same_bits(both.weight().data().slice(0, 2, 3), v.weight().data());
  const Variable x(random_tensor({4, 3}, DType::f64));
  check_close(both(x).data().slice(1, 0, 2), k(x).data(), 1e-14, 1e-14);
  check_close(both(x).data().slice(1, 2, 3), v(x).data(), 1e-14, 1e-14);
}

BOOST_AUTO_TEST_CASE(embedding_and_norm) {
  ParameterStore store(DType::f64, {});
  const Embedding table(store, "embed", 3, 2, 0.02);
  const RmsNormModule norm(store, "norm", 2, 0);
  store.initialize(1);
  table.weight().data().copy_(Tensor::from<double>({1, 2, 3, 4, 5, 12}, {3, 2}));
  const Variable rows = table(Tensor::from<int32_t>({2, 0}));
  BOOST_TEST(doubles(rows.data()) == std::vector<double>({5, 12, 1, 2}),
             boost::test_tools::per_element());
  // rms of (5, 12) is 13 / sqrt 2.
  const std::vector<double> y = doubles(norm(rows).data());
  BOOST_TEST(std::abs(y[0] - 5 * std::sqrt(2.0) / 13) < 1e-15);
  BOOST_TEST(std::abs(y[1] - 12 * std::sqrt(2.0) / 13) < 1e-15);
  BOOST_CHECK_THROW(table(Tensor::from<int32_t>({3})), ShapeError);
  for (const Parameter* p : store.all()) BOOST_TEST(!p->decay);
}

BOOST_AUTO_TEST_CASE(swiglu_feed_forward) {
  ParameterStore store(DType::f64, {});
  const SwigluMlp mlp(store, "mlp", 2, 3, 0.5);
  store.initialize(9);
  const std::vector<Parameter*> parameters = store.all();
  BOOST_REQUIRE(parameters.size() == 2u);
  BOOST_TEST(parameters[0]->pieces[0].name == "mlp.gate_proj.weight");
  BOOST_TEST(parameters[0]->pieces[1].name == "mlp.up_proj.weight");
  BOOST_TEST(parameters[1]->name == "mlp.down_proj.weight");
  const std::vector<double> gate_up = doubles(parameters[0]->value.data());
  const std::vector<double> down = doubles(parameters[1]->value.data());
  const std::vector<double> x = {0.7, -1.3};
  std::vector<double> y(2);
  for (size_t f = 0; f < 3; ++f) {
    const double gate = gate_up[2 * f] * x[0] + gate_up[2 * f + 1] * x[1];
    const double up = gate_up[6 + 2 * f] * x[0] + gate_up[6 + 2 * f + 1] * x[1];
    for (size_t h = 0; h < 2; ++h) y[h] += down[3 * h + f] * gate / (1 + std::exp(-gate)) * up;
  }
  check_close(mlp(Variable(Tensor::from(x, {1, 2}))).data(), Tensor::from(y, {1, 2}), 1e-13, 1e-15);
  BOOST_TEST(store.numel() == 3 * 3 * 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
