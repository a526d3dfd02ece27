#include "nn/parameter.h"

#include "tensor/rng.h"
#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

Parameter named(std::string name, std::vector<TensorPiece> pieces = {}) {
  return {.name = std::move(name), .value = {}, .pieces = std::move(pieces)};
}
std::string expert(int64_t e) {
  std::string name = "layers.0.experts.";
  return name.append(std::to_string(e)).append(".up");
}

/// The parameter that holds experts [begin, end), each [3, 2].
Parameter experts(std::string name, int64_t begin, int64_t end) {
  std::vector<TensorPiece> pieces;
  for (int64_t e = begin; e < end; ++e) pieces.push_back({expert(e), (e - begin) * 6, {3, 2}});
  return named(std::move(name), std::move(pieces));
}

BOOST_AUTO_TEST_SUITE(parameter_store)

BOOST_AUTO_TEST_CASE(values_are_a_function_of_seed_and_piece_name) {
  for (const DType dtype : kFloating) {
    ParameterStore store(dtype, {});
    Parameter parameter = named("w");
    parameter.std = 0.5;
    Parameter& w = store.add(parameter, {3, 5});
    store.initialize(42);
    const Random random(42, "w");
    std::vector<double> expected;
    for (uint64_t i = 0; i < 15; ++i) expected.push_back(0.5 * random.normal(i));
    check_same_bits(w.value.data(),
                    Tensor::from(expected, {3, 5}).to(accumulation_dtype(dtype)).to(dtype));
  }
}

BOOST_AUTO_TEST_CASE(values_do_not_depend_on_how_experts_are_split) {
  ParameterStore together(DType::f32, {});
  const Parameter& all = together.add(experts("experts", 0, 4), {4, 3, 2});
  together.add(named("other"), {2});
  together.initialize(7);
  for (const auto& [begin, end] : {std::pair{0, 2}, {2, 4}, {3, 4}}) {
    ParameterStore rank(DType::f32, {});
    rank.add(named("other"), {2});
    const Parameter& own = rank.add(experts("experts", begin, end), {end - begin, 3, 2});
    rank.initialize(7);
    for (int64_t e = begin; e < end; ++e) {
      check_same_bits(Parameter::view_piece(own.value.data(), own.pieces[size_t(e - begin)]),
                      Parameter::view_piece(all.value.data(), all.pieces[size_t(e)]));
    }
    check_same_bits(rank.variables()[0].data(), together.variables()[1].data());
  }
  // Different experts, different numbers; another seed, other numbers.
  const std::vector<double> before = doubles(all.value.data());
  BOOST_TEST(before[0] != before[6]);
  together.initialize(8);
  BOOST_TEST(before[0] != doubles(all.value.data())[0]);
}

BOOST_AUTO_TEST_CASE(values_do_not_depend_on_threads) {
  check_same_bits_for_any_threads([] {
    ParameterStore store(DType::f32, {});
    store.add(named("w"), {101, 37});
    store.initialize(1);
    return std::vector<Tensor>{store.variables()[0].data()};
  });
}

BOOST_AUTO_TEST_CASE(gains_start_at_one_and_defaults_are_small) {
  ParameterStore store(DType::f32, {});
  Parameter gain = named("norm");
  gain.init = Init::ones;
  store.add(gain, {3});
  store.add(named("w"), {200, 100});
  BOOST_TEST(store.numel() == 3 + 20000);
  store.initialize(3);
  BOOST_TEST(doubles(store.variables()[0].data()) == std::vector<double>({1, 1, 1}));
  double sum = 0, squares = 0;
  for (const double x : doubles(store.variables()[1].data())) {
    sum += x;
    squares += x * x;
  }
  // Mean and standard deviation of 20000 draws of N(0, 0.02^2), within five standard errors.
  BOOST_TEST(std::abs(sum / 20000) < 5 * 0.02 / std::sqrt(20000.0));
  BOOST_TEST(std::abs(std::sqrt(squares / 20000) / 0.02 - 1) < 5 / std::sqrt(2 * 20000.0));
}

BOOST_AUTO_TEST_CASE(pieces_are_views) {
  ParameterStore store(DType::f32, {});
  const Parameter& p = store.add(named("kv", {{"k", 0, {2, 3}}, {"v", 6, {1, 3}}}), {3, 3});
  p.value.data().fill_(0);
  const Tensor v = Parameter::view_piece(p.value.data(), p.pieces[1]);
  BOOST_TEST(to_string(v.shape()) == "[1, 3]");
  v.fill_(4);
  BOOST_TEST(doubles(p.value.data()) == std::vector<double>({0, 0, 0, 0, 0, 0, 4, 4, 4}));
  BOOST_TEST(p.value.requires_grad());
  BOOST_TEST(p.value.is_leaf());
}

BOOST_AUTO_TEST_CASE(order_and_addresses_are_stable) {
  ParameterStore store(DType::f32, {});
  std::vector<Parameter*> added;
  for (int i = 0; i < 200; ++i) added.push_back(&store.add(named(std::to_string(i)), {1}));
  BOOST_TEST(store.all() == added, boost::test_tools::per_element());
  BOOST_TEST(added[199]->name == "199");
  BOOST_TEST(store.variables()[7].id() == added[7]->value.id());
}

BOOST_AUTO_TEST_CASE(empty_parameters_are_legal) {
  // A rank may hold no expert.
  ParameterStore store(DType::f32, {});
  store.add(named("none", {{"none", 0, {0, 3, 2}}}), {0, 3, 2});
  store.initialize(1);
  BOOST_TEST(store.numel() == 0);
}

BOOST_AUTO_TEST_CASE(refusals) {
  ParameterStore store(DType::f32, {});
  store.add(named("w"), {2, 3});
  BOOST_CHECK_EXCEPTION(store.add(named("w"), {4}), ConfigError,
                        says("parameter 'w' exists already"));
  BOOST_CHECK_EXCEPTION(store.add(named("gap", {{"a", 0, {2}}, {"b", 3, {1}}}), {4}), ShapeError,
                        says("parameter 'gap': piece 'b' begins at 3, not 2"));
  BOOST_CHECK_EXCEPTION(store.add(named("overlap", {{"a", 0, {2}}, {"b", 1, {2}}}), {3}),
                        ShapeError, says("piece 'b' begins at 1, not 2"));
  BOOST_CHECK_EXCEPTION(store.add(named("short", {{"a", 0, {2}}}), {3}), ShapeError,
                        says("parameter 'short': pieces hold 2 elements, shape is [3]"));
  // A tensor of the checkpoint has one home.
  BOOST_CHECK_EXCEPTION(store.add(named("twice", {{"c", 0, {1}}, {"c", 1, {1}}}), {2}), ConfigError,
                        says("parameter 'twice': piece 'c' exists already"));
  BOOST_CHECK_EXCEPTION(store.add(named("alias", {{"w", 0, {2}}}), {2}), ConfigError,
                        says("parameter 'alias': piece 'w' exists already"));
  BOOST_TEST(store.all().size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
