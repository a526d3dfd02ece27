#include "nn/execution_plan.h"

#include <limits>
#include <ostream>

#include "tests/testing.h"

namespace smelt {

std::ostream& operator<<(std::ostream& out, const ExecutionStep& step) {
  return out << "(layer " << step.layer << ", visit " << step.visit << ", scale "
             << step.residual_scale << ", slot " << step.kv_slot
             << (step.writes_kv ? " written)" : " read)");
}

namespace {

using namespace testing;
using Steps = std::vector<ExecutionStep>;

void check_steps(const ExecutionPlan& plan, const Steps& expected) {
  BOOST_CHECK_EQUAL_COLLECTIONS(plan.steps().begin(), plan.steps().end(), expected.begin(),
                                expected.end());
  BOOST_TEST(plan.executed_depth() == int64_t(expected.size()));
}

BOOST_AUTO_TEST_SUITE(execution_plan)

BOOST_AUTO_TEST_CASE(span_order_repeats_the_span_as_a_block) {
  const ExecutionPlan plan(4, {.layers = 2, .visits = 2});
  check_steps(plan, {{0, 0, 1, 0, true},
                     {1, 0, 0.5, 1, true},
                     {2, 0, 0.5, 2, true},
                     {1, 1, 0.5, 3, true},
                     {2, 1, 0.5, 4, true},
                     {3, 0, 1, 5, true}});
  BOOST_TEST(plan.kv_slots() == 6);  // CASES 36
  BOOST_TEST(plan.step_of(2, 0) == 2);
  BOOST_TEST(plan.step_of(1, 1) == 3);
  BOOST_TEST(plan.step_of(3, 0) == 5);
}

BOOST_AUTO_TEST_CASE(layer_order_repeats_each_layer_in_place) {
  const ExecutionPlan plan(4, {.layers = 2, .visits = 3, .scale = 0.25, .order = LoopOrder::layer});
  check_steps(plan, {{0, 0, 1, 0, true},
                     {1, 0, 0.25, 1, true},
                     {1, 1, 0.25, 2, true},
                     {1, 2, 0.25, 3, true},
                     {2, 0, 0.25, 4, true},
                     {2, 1, 0.25, 5, true},
                     {2, 2, 0.25, 6, true},
                     {3, 0, 1, 7, true}});
  BOOST_TEST(plan.kv_slots() == 8);
}

BOOST_AUTO_TEST_CASE(kv_first_reads_what_visit_one_stored) {
  const LoopConfig loop = {.start = 0, .layers = 2, .visits = 2, .kv = LoopKv::first};
  const ExecutionPlan span(3, loop);
  check_steps(span, {{0, 0, 0.5, 0, true},
                     {1, 0, 0.5, 1, true},
                     {0, 1, 0.5, 0, false},
                     {1, 1, 0.5, 1, false},
                     {2, 0, 1, 2, true}});
  BOOST_TEST(span.kv_slots() == 3);
  LoopConfig in_place = loop;
  in_place.order = LoopOrder::layer;
  const ExecutionPlan layer(3, in_place);
  check_steps(layer, {{0, 0, 0.5, 0, true},
                      {0, 1, 0.5, 0, false},
                      {1, 0, 0.5, 1, true},
                      {1, 1, 0.5, 1, false},
                      {2, 0, 1, 2, true}});
  BOOST_TEST(layer.kv_slots() == 3);
}

BOOST_AUTO_TEST_CASE(a_centred_span_leaves_an_odd_rest_to_the_coda) {
  // The published spans, there counted from 1: L = 10: 3-7, 12: 4-9, 20: 6-15, 30: 8-22.
  struct Case {
    int64_t num_layers, layers, first, last;
  };
  for (const Case& c : {Case{10, 5, 3, 7},
                        {12, 6, 4, 9},
                        {20, 10, 6, 15},
                        {30, 15, 8, 22},
                        {4, 4, 1, 4},
                        {1, 1, 1, 1},
                        {5, 2, 2, 3},
                        {2, 1, 1, 1}}) {
    const ExecutionPlan plan(c.num_layers, {.layers = c.layers, .visits = 2});
    BOOST_TEST_CONTEXT("L = " << c.num_layers << ", layers " << c.layers) {
      BOOST_TEST(plan.span_begin() == c.first - 1);
      BOOST_TEST(plan.span_end() == c.last);
      for (int64_t layer = 0; layer < c.num_layers; ++layer) {
        const bool inside = c.first - 1 <= layer && layer < c.last;
        BOOST_TEST(plan.looped(layer) == inside);
        BOOST_TEST(plan.visits_of(layer) == (inside ? 2 : 1));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(any_number_of_visits) {
  for (const LoopOrder order : {LoopOrder::span, LoopOrder::layer}) {
    for (int64_t visits = 1; visits <= 4; ++visits) {
      const ExecutionPlan plan(5, {.layers = 3, .visits = visits, .order = order});
      BOOST_TEST(plan.visits() == visits);
      BOOST_TEST(plan.executed_depth() == 5 + (visits - 1) * 3);
      BOOST_TEST(plan.kv_slots() == plan.executed_depth());
      for (int64_t layer = 0; layer < 5; ++layer) {
        for (int64_t visit = 0; visit < plan.visits_of(layer); ++visit) {
          const ExecutionStep& step = plan.steps()[size_t(plan.step_of(layer, visit))];
          BOOST_TEST(step.layer == layer);
          BOOST_TEST(step.visit == visit);
          BOOST_TEST(step.residual_scale == (plan.looped(layer) ? 1.0 / double(visits) : 1.0));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(one_visit_or_no_span_is_the_plain_stack) {
  const Steps plain = {{0, 0, 1, 0, true}, {1, 0, 1, 1, true}, {2, 0, 1, 2, true}};
  check_steps(ExecutionPlan(3, {}), plain);
  check_steps(ExecutionPlan(3, {.layers = 3, .visits = 1}), plain);
  check_steps(ExecutionPlan(3, {.layers = 1, .visits = 1, .order = LoopOrder::layer}), plain);
  check_steps(ExecutionPlan(3, {.layers = 2, .visits = 1, .kv = LoopKv::first}), plain);
  // Without a span nothing repeats, whatever else is set.
  const ExecutionPlan none(3, {.start = 1, .layers = 0, .visits = 4, .scale = 0.5});
  check_steps(none, plain);
  BOOST_TEST(none.visits() == 1);
  BOOST_TEST(!none.looped(1));
  BOOST_TEST(none.visits_of(1) == 1);
}

BOOST_AUTO_TEST_CASE(refusals) {
  const auto refused = [](int64_t num_layers, const LoopConfig& loop, const char* text) {
    BOOST_CHECK_EXCEPTION(ExecutionPlan(num_layers, loop), ConfigError, says(text));
  };
  refused(0, {}, "model.num_layers = 0 must be at least 1");
  refused(-2, {}, "model.num_layers = -2 must be at least 1");
  refused(3, {.layers = 4}, "loop.layers = 4 must be between 0 and model.num_layers = 3");
  refused(3, {.layers = -1}, "loop.layers = -1 must be between 0");
  refused(3, {.layers = 1, .visits = 0}, "loop.visits = 0 must be at least 1");
  refused(3, {.visits = -3}, "loop.visits = -3 must be at least 1");
  refused(3, {.start = -2, .layers = 1}, "loop.start = -2 must be -1 (centred)");
  refused(3, {.start = 2, .layers = 2},
          "loop.start + loop.layers = 2 + 2 must not exceed model.num_layers = 3");
  refused(3, {.start = std::numeric_limits<int64_t>::max(), .layers = 1},
          "must not exceed model.num_layers = 3");
  refused(3, {.layers = 1, .scale = -0.5}, "loop.scale = -0.5 must be 0 (1 / visits) or positive");
  refused(3, {.layers = 1, .scale = kNaN}, "loop.scale = nan");
  refused(3, {.layers = 1, .scale = kInfinity}, "loop.scale = inf");
  const ExecutionPlan plan(3, {.layers = 1, .visits = 2});
  BOOST_CHECK_EXCEPTION(plan.step_of(0, 1), ConfigError,
                        says("the plan has no visit 1 of layer 0"));
  BOOST_CHECK_THROW(plan.step_of(3, 0), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
