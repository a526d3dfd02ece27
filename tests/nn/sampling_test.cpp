#include "nn/sampling.h"

#include <set>

#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kDraws = 20000;

/// How often each token came up in kDraws draws.
std::vector<int> histogram(const std::vector<float>& logits, const SamplingConfig& config) {
  std::vector<int> counts(logits.size());
  for (uint64_t i = 0; i < kDraws; ++i) ++counts[size_t(sample_token(logits, config, 0, i))];
  return counts;
}

/// Counts within five standard deviations of these probabilities; probability 0 means never.
void check_counts(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  for (size_t i = 0; i < counts.size(); ++i) {
    const double p = probabilities[i];
    BOOST_TEST_CONTEXT("token " << i << ", probability " << p) {
      BOOST_TEST(std::abs(counts[i] - kDraws * p) <= 5 * std::sqrt(kDraws * p * (1 - p)));
    }
  }
}

std::vector<double> softmax_of(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double total = 0;
  for (const float x : logits) total += std::exp(double(x) / temperature);
  for (const float x : logits) p.push_back(std::exp(double(x) / temperature) / total);
  return p;
}

BOOST_AUTO_TEST_SUITE(sampling)

BOOST_AUTO_TEST_CASE(greedy_takes_the_largest_and_of_ties_the_first) {
  BOOST_TEST(sample_token({1, 3, 2}, {}, 0, 0) == 1);
  BOOST_TEST(sample_token({1, 3, 3, 3}, {}, 5, 9) == 1);
  BOOST_TEST(sample_token({0, 0}, {}, 0, 0) == 0);
  BOOST_TEST(sample_token({-kInf, -7, -kInf}, {}, 0, 0) == 1);
  BOOST_TEST(sample_token({kNan, 1, kNan, 4, 4}, {}, 0, 0) == 3);
  BOOST_TEST(sample_token({4, kNan}, {}, 0, 0) == 0);
  // Greedy ignores the other options.
  BOOST_TEST(sample_token({1, 3, 2}, {.top_k = 2, .top_p = 0.1, .seed = 7}, 0, 0) == 1);
}

BOOST_AUTO_TEST_CASE(temperature_shapes_the_distribution) {
  const std::vector<float> logits = {0, 1, 2, -1};
  for (const double temperature : {0.5, 1.0, 3.0}) {
    BOOST_TEST_CONTEXT("temperature " << temperature) {
      check_counts(histogram(logits, {.temperature = temperature, .seed = 1}),
                   softmax_of(logits, temperature));
    }
  }
  // Near zero it is greedy, however far the logits are apart.
  for (const int count : {histogram({1000, 0, 999}, {.temperature = 1e-9})[0]})
    BOOST_TEST(count == kDraws);
  BOOST_TEST(histogram({1e30f, -1e30f}, {.temperature = 1})[0] == kDraws);
}

BOOST_AUTO_TEST_CASE(top_k_keeps_the_most_likely) {
  const std::vector<float> logits = {0, 1, 2, -1};
  const std::vector<double> two = softmax_of({1, 2}, 1);
  check_counts(histogram(logits, {.temperature = 1, .top_k = 2}), {0, two[0], two[1], 0});
  for (const int64_t all : {0, 4, 100})
    check_counts(histogram(logits, {.temperature = 1, .top_k = all}), softmax_of(logits, 1));
  check_counts(histogram(logits, {.temperature = 5, .top_k = 1}), {0, 0, 1, 0});
  // Of equal logits the lower ids stay.
  check_counts(histogram({2, 2, 2, 2}, {.temperature = 1, .top_k = 2}), {0.5, 0.5, 0, 0});
}

BOOST_AUTO_TEST_CASE(top_p_keeps_the_smallest_set_that_reaches_it) {
  // Probabilities 1/2, 1/4, 1/8, 1/8, exact in binary.
  const auto log2 = float(std::log(2.0));
  const std::vector<float> logits = {0, 2 * log2, log2, 0};
  const auto kept = [&](double top_p) {
    std::set<size_t> ids;
    const std::vector<int> counts = histogram(logits, {.temperature = 1, .top_p = top_p});
    for (size_t i = 0; i < counts.size(); ++i)
      if (counts[i] > 0) ids.insert(i);
    return ids;
  };
  using Ids = std::set<size_t>;
  BOOST_TEST((kept(1e-12) == Ids{1}));
  BOOST_TEST((kept(0.49) == Ids{1}));
  BOOST_TEST((kept(0.51) == Ids{1, 2}));
  BOOST_TEST((kept(0.74) == Ids{1, 2}));
  BOOST_TEST((kept(0.76) == Ids{0, 1, 2}));
  BOOST_TEST((kept(0.9) == Ids{0, 1, 2, 3}));
  BOOST_TEST((kept(1) == Ids{0, 1, 2, 3}));
  check_counts(histogram(logits, {.temperature = 1, .top_p = 0.7}), {0, 2.0 / 3, 1.0 / 3, 0});
  // Equal weights are exact: one of two reaches one half, neither more nor less.
  check_counts(histogram({3, 3}, {.temperature = 1, .top_p = 0.5}), {1, 0});
  check_counts(histogram({3, 3}, {.temperature = 1, .top_p = 0.500001}), {0.5, 0.5});
  // p counts among what top-k left: 2/3 and 1/3.
  check_counts(histogram(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6}), {0, 1, 0, 0});
}

BOOST_AUTO_TEST_CASE(impossible_tokens_never_come_up) {
  check_counts(histogram({-kInf, 1, kNan, 1, -kInf}, {.temperature = 1}), {0, 0.5, 0, 0.5, 0});
}

BOOST_AUTO_TEST_CASE(a_draw_is_a_function_of_seed_sequence_and_index) {
  const std::vector<float> logits(50, 0);
  const auto draws = [&](uint64_t seed, uint64_t sequence) {
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < 40; ++i)
      ids.push_back(sample_token(logits, {.temperature = 1, .seed = seed}, sequence, i));
    return ids;
  };
  const std::vector<int32_t> first = draws(1, 0);
  BOOST_TEST(first == draws(1, 0), boost::test_tools::per_element());
  BOOST_TEST((first != draws(2, 0)));
  BOOST_TEST((first != draws(1, 1)));
  BOOST_TEST(std::set<int32_t>(first.begin(), first.end()).size() > 10u);
  // The order of the calls does not matter.
  BOOST_TEST(sample_token(logits, {.temperature = 1, .seed = 1}, 0, 17) == first[17]);
}

BOOST_AUTO_TEST_CASE(refusals) {
  validate({});
  validate({.temperature = 0.7, .top_k = 5, .top_p = 1e-9});
  BOOST_CHECK_EXCEPTION(validate({.temperature = -1}), ConfigError,
                        says("temperature = -1 must be 0 (greedy) or positive"));
  BOOST_CHECK_EXCEPTION(validate({.temperature = kNaN}), ConfigError, says("temperature = nan"));
  BOOST_CHECK_EXCEPTION(validate({.temperature = kInfinity}), ConfigError,
                        says("temperature = inf"));
  BOOST_CHECK_EXCEPTION(validate({.top_k = -3}), ConfigError,
                        says("top_k = -3 must be 0 (all) or positive"));
  for (const double p : {0.0, -0.5, 1.5, kNaN})
    BOOST_CHECK_EXCEPTION(validate({.top_p = p}), ConfigError, says("must be in (0, 1]"));
  for (const double temperature : {0.0, 1.0}) {
    const SamplingConfig config = {.temperature = temperature};
    BOOST_CHECK_EXCEPTION(sample_token({}, config, 0, 0), RunError, says("sampling: no logits"));
    BOOST_CHECK_EXCEPTION(sample_token({kNan, kNan}, config, 0, 0), RunError,
                          says("sampling: the largest of 2 logits is nan"));
    BOOST_CHECK_EXCEPTION(sample_token({-kInf}, config, 0, 0), RunError, says("is -inf"));
    BOOST_CHECK_EXCEPTION(sample_token({1, kInf, 2}, config, 0, 0), RunError,
                          says("sampling: the largest of 3 logits is inf"));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
