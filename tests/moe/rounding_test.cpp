// CASE 44: rounded weights are applied once per visit, so rounding errors grow with the visits. The
// bounds are what was measured, with room: a jump beyond them is a change of numerics.
#include <cmath>

#include "tests/moe/models.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

/// Root mean square of the logits' difference between bf16 and f32, over that of the logits. (The
/// largest difference follows single tokens whose experts a rounding has changed.)
double logit_gap(int64_t visits) {
  const NoGrad no_grad;
  ModelConfig config = tiny_config(visits);
  config.init_std = 0.1;
  const auto wide = make_model(config, DType::f32);
  const auto narrow = make_model(config, DType::bf16);
  const ModelInput input = random_batch(4, 32, 7, true).input();
  const auto exact = wide->logits(wide->hidden(input)).data().to_vector<float>();
  const auto rounded = narrow->logits(narrow->hidden(input)).data().to_vector<float>();
  double total = 0, difference = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    total += double(exact[i]) * double(exact[i]);
    difference += double(exact[i] - rounded[i]) * double(exact[i] - rounded[i]);
  }
  return std::sqrt(difference / total);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rounding)

BOOST_AUTO_TEST_CASE(bf16_stays_near_f32_for_every_number_of_visits) {
  for (const int64_t visits : {1, 2, 4}) {
    const double gap = logit_gap(visits);
    BOOST_TEST_MESSAGE("visits " << visits << ": logit gap " << gap);
    BOOST_CHECK_GT(gap, 0);
    BOOST_CHECK_LT(gap, 0.05);
  }
}

BOOST_AUTO_TEST_SUITE_END()
