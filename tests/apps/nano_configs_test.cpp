// The two shipped configurations of the first run are a fair pair: the same budgets within the
// bounds of a matched comparison, and nothing else differs but the model and the run's folder.
#include <cmath>
#include <set>
#include <string>

#include <boost/test/unit_test.hpp>

#include "apps/common/config.h"
#include "moe/budget.h"

namespace smelt {
namespace {

RunConfig shipped(const std::string& name) {
  std::string path = SMELT_SOURCE_DIR;
  path.append("/apps/configs/").append(name);
  return load_config(path).config;
}

double deviation(double value, double reference) { return std::abs(value / reference - 1); }

BOOST_AUTO_TEST_SUITE(nano_configs)

BOOST_AUTO_TEST_CASE(budgets_match_at_every_mean_context_of_the_data) {
  const RunConfig baseline = shipped("nano-baseline.ini"), smelt = shipped("nano-smelt.ini");
  for (const double context : {64.0, 128.0, 256.0}) {
    const Budget b = budget_of(baseline.model, context), s = budget_of(smelt.model, context);
    BOOST_TEST_CONTEXT("mean context " << context) {
      BOOST_TEST(deviation(s.flops_per_token, b.flops_per_token) < 0.04);
      BOOST_TEST(deviation(double(s.params_non_embedding), double(b.params_non_embedding)) < 0.01);
      BOOST_TEST(deviation(double(s.kv_values_per_token), double(b.kv_values_per_token)) < 0.04);
    }
  }
}

BOOST_AUTO_TEST_CASE(only_the_smelt_repeats_its_middle_half) {
  const RunConfig baseline = shipped("nano-baseline.ini"), smelt = shipped("nano-smelt.ini");
  BOOST_TEST(budget_of(baseline.model, 1).executed_depth == baseline.model.num_layers);
  const ExecutionPlan plan(smelt.model.num_layers, smelt.model.loop);
  const int64_t quarter = smelt.model.num_layers / 4;
  BOOST_TEST(plan.span_begin() == quarter);
  BOOST_TEST(plan.span_end() == smelt.model.num_layers - quarter);
  BOOST_TEST(plan.visits() == 2);
  for (const ExecutionStep& step : plan.steps())
    BOOST_TEST(step.residual_scale == (plan.looped(step.layer) ? 0.5 : 1.0));
  BOOST_TEST(smelt.model.num_experts * 2 == baseline.model.num_experts * 3);
}

BOOST_AUTO_TEST_CASE(everything_but_the_model_and_the_run_folder_is_equal) {
  const std::set<std::string> sizes = {"model.hidden_size",  "model.num_heads",
                                       "model.num_kv_heads", "model.num_experts",
                                       "model.head_dim",     "model.expert_hidden_size"};
  for (const ConfigDifference& difference :
       config_differences(shipped("nano-baseline.ini"), shipped("nano-smelt.ini"))) {
    const bool allowed = sizes.count(difference.key) > 0 || difference.key == "run.dir" ||
                         difference.key.starts_with("loop.");
    BOOST_TEST(allowed, difference.key << ": " << difference.before << " and " << difference.after);
  }
}

BOOST_AUTO_TEST_CASE(both_run_on_two_ranks) {
  for (const char* name : {"nano-baseline.ini", "nano-smelt.ini"}) {
    const RunConfig config = shipped(name);
    BOOST_TEST(config.dist.expert_parallel == 2);
    BOOST_CHECK_NO_THROW(validate(config, 2));
    BOOST_CHECK_NO_THROW(validate_data(config));
    BOOST_TEST(config.data.train.size() == 5u);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt
