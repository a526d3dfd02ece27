#include "nn/schedule.h"

#include "tests/testing.h"

namespace smelt {
namespace {

using namespace testing;

void check_rates(const ScheduleConfig& config, const std::vector<double>& expected,
                 double tolerance = 1e-12) {
  for (size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST_CONTEXT("step " << i + 1) {
      BOOST_TEST(std::abs(learning_rate(config, int64_t(i) + 1) - expected[i]) < tolerance);
    }
  }
}

BOOST_AUTO_TEST_SUITE(schedule)

BOOST_AUTO_TEST_CASE(linear_decay) {
  // CASES 74; the last step reaches the minimum, which then holds.
  check_rates({.schedule = Schedule::wsd,
               .lr = 1,
               .min_lr_ratio = 0.1,
               .warmup_steps = 4,
               .total_steps = 10,
               .decay_steps = 6},
              {0.25, 0.5, 0.75, 1, 0.85, 0.7, 0.55, 0.4, 0.25, 0.1, 0.1, 0.1});
}

BOOST_AUTO_TEST_CASE(stable_phase_before_the_decay) {
  const ScheduleConfig config = {.schedule = Schedule::wsd,
                                 .lr = 2,
                                 .min_lr_ratio = 0,
                                 .warmup_steps = 2,
                                 .total_steps = 8,
                                 .decay_steps = 4};
  check_rates(config, {1, 2, 2, 2, 1.5, 1, 0.5, 0, 0});
  // A decay longer than what follows the warm-up begins at its end.
  ScheduleConfig longer = config;
  longer.decay_steps = 100;
  check_rates(longer, {1, 2, 2 * 5.0 / 6, 2 * 4.0 / 6, 2 * 3.0 / 6, 2 * 2.0 / 6, 2 * 1.0 / 6, 0});
  ScheduleConfig none = config;
  none.decay_steps = 0;
  check_rates(none, {1, 2, 2, 2, 2, 2, 2, 2, 2});
}

BOOST_AUTO_TEST_CASE(cosine_decay) {
  check_rates({.schedule = Schedule::cosine,
               .lr = 1,
               .min_lr_ratio = 0.1,
               .warmup_steps = 4,
               .total_steps = 10},
              {0.25, 0.5, 0.75, 1, 0.9397, 0.775, 0.55, 0.325, 0.1603, 0.1, 0.1}, 5e-5);
}

BOOST_AUTO_TEST_CASE(constant_rate) {
  check_rates({.schedule = Schedule::constant, .lr = 3, .warmup_steps = 2, .total_steps = 4},
              {1.5, 3, 3, 3, 3, 3});
}

BOOST_AUTO_TEST_CASE(without_warm_up_the_first_step_is_at_the_peak) {
  check_rates(
      {.schedule = Schedule::wsd, .lr = 1, .min_lr_ratio = 0.1, .total_steps = 4, .decay_steps = 4},
      {1, 0.7, 0.4, 0.1, 0.1});
  check_rates({.schedule = Schedule::cosine, .lr = 1, .min_lr_ratio = 0.1, .total_steps = 3},
              {1, 0.55, 0.1, 0.1});
  check_rates({.schedule = Schedule::constant, .lr = 1, .total_steps = 2}, {1, 1, 1});
}

BOOST_AUTO_TEST_CASE(edges) {
  for (const Schedule kind : {Schedule::wsd, Schedule::cosine, Schedule::constant}) {
    // Warm-up as long as the run: it ends at the peak and stays there.
    check_rates({.schedule = kind, .lr = 1, .warmup_steps = 4, .total_steps = 4, .decay_steps = 2},
                {0.25, 0.5, 0.75, 1, 1, 1});
    // One step.
    for (const int64_t warmup : {0, 1}) {
      check_rates(
          {.schedule = kind, .lr = 1, .warmup_steps = warmup, .total_steps = 1, .decay_steps = 1},
          {1, 1});
    }
  }
  // The minimum equal to the peak is a constant.
  check_rates({.schedule = Schedule::cosine, .lr = 1, .min_lr_ratio = 1, .total_steps = 3},
              {1, 1, 1, 1});
  BOOST_CHECK_EXCEPTION(learning_rate({}, 0), ConfigError,
                        says("learning_rate: step 0 must be at least 1"));
}

BOOST_AUTO_TEST_CASE(rates_never_rise_after_the_warm_up) {
  for (const Schedule kind : {Schedule::wsd, Schedule::cosine}) {
    for (const int64_t warmup : {0, 1, 7}) {
      const ScheduleConfig config = {.schedule = kind,
                                     .lr = 1,
                                     .min_lr_ratio = 0.1,
                                     .warmup_steps = warmup,
                                     .total_steps = 50,
                                     .decay_steps = 20};
      for (int64_t step = std::max<int64_t>(warmup, 1); step < 60; ++step)
        BOOST_TEST(learning_rate(config, step + 1) <= learning_rate(config, step));
      BOOST_TEST(learning_rate(config, std::max<int64_t>(warmup, 1)) == 1);
      BOOST_TEST(learning_rate(config, 1000000) == learning_rate(config, 50));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
