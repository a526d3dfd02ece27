// smelt-eval on tiny untrained models: what is scored, what is recorded, and what is refused.
#include <cmath>

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include "apps/eval/curves.h"
#include "apps/eval/evaluation.h"
#include "apps/eval/report.h"
#include "tests/apps/eval_runs.h"

namespace smelt::testing {
namespace {

namespace json = boost::json;

EvalOptions options_of(const std::vector<std::string>& words) {
  return eval_options(Arguments(eval_option_table(), words));
}

Evaluation evaluate(const std::string& path, const std::vector<std::string>& words = {}) {
  std::vector<std::string> all = {"--checkpoint=" + path};
  all.insert(all.end(), words.begin(), words.end());
  return evaluate_checkpoint(path, options_of(all), dist::World(1));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

BOOST_AUTO_TEST_SUITE(eval)

BOOST_AUTO_TEST_CASE(a_run_folder_is_scored_as_its_config_says) {
  const ScratchFolder scratch;
  const Evaluation e = evaluate(make_run(scratch, "run", 2));
  BOOST_TEST(e.name == "run");
  BOOST_TEST(e.checkpoint == scratch.path("run/checkpoints/step-7"));
  BOOST_TEST(evaluate(e.checkpoint).name == "run/step-7");
  BOOST_TEST(e.step.value() == 7);
  BOOST_TEST(e.tokens.value() == 448);
  BOOST_TEST(e.seq_len == kSeqLen);
  BOOST_TEST(e.document_mask);
  BOOST_TEST(e.tokens_per_second == 300);
  BOOST_REQUIRE(e.domains.size() == 2u);
  BOOST_TEST(e.domains[0].domain == "code");
  // Two documents of 24 and 5 bytes: each byte but the first of a document, and both end marks.
  BOOST_TEST(e.domains[0].targets == 29);
  BOOST_TEST(e.domains[0].bytes == 27);
  // One document of 33 bytes over five sequences: the last holds one target.
  BOOST_TEST(e.domains[1].targets == 33);
  BOOST_TEST(e.domains[1].bytes == 32);
}

BOOST_AUTO_TEST_CASE(an_indifferent_model_costs_the_logarithm_of_the_vocabulary) {
  const ScratchFolder scratch;
  const Evaluation e = evaluate(make_run(scratch, "run", 1, true));
  for (const DomainLoss& loss : e.domains) {
    BOOST_TEST(std::abs(loss.nats_per_token() - std::log(257.0)) < 1e-5);
    // End marks cost like any token, and are no bytes of text.
    const double bits = std::log2(257.0) * loss.targets / loss.bytes;
    BOOST_TEST(std::abs(loss.bits_per_byte() - bits) < 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(without_the_document_mask_every_token_but_the_first_is_scored) {
  const ScratchFolder scratch;
  const Evaluation e = evaluate(make_run(scratch, "run", 1), {"--no-document-mask"});
  BOOST_TEST(!e.document_mask);
  BOOST_TEST(e.domains[0].targets == 30);  // 24 + 5 bytes and two end marks, less the first
  BOOST_TEST(e.domains[0].bytes == 28);
}

BOOST_AUTO_TEST_CASE(the_result_does_not_depend_on_the_batch) {
  const ScratchFolder scratch;
  const std::string run = make_run(scratch, "run", 2);
  const DomainLoss one = overall(evaluate(run, {"--batch=1"}).domains);
  const DomainLoss many = overall(evaluate(run, {"--batch=64"}).domains);
  BOOST_TEST(one.targets == many.targets);
  BOOST_TEST(std::abs(one.nats / many.nats - 1) < 1e-6);
}

BOOST_AUTO_TEST_CASE(json_holds_all_that_the_numbers_depend_on) {
  const ScratchFolder scratch;
  const json::array document = evaluations_json({evaluate(make_run(scratch, "run", 2))});
  const json::object& o = document.at(0).as_object();
  for (const char* key :
       {"checkpoint", "step", "tokens", "loop", "document_mask", "seq_len", "dtype", "mean_context",
        "flops_per_token", "params_non_embedding", "kv_values_per_token", "domains", "overall",
        "tokens_per_second", "generations"})
    BOOST_TEST(o.contains(key), key << " is missing");
  const json::object& loop = o.at("loop").as_object();
  BOOST_TEST(loop.at("start").as_int64() == 0);
  BOOST_TEST(loop.at("layers").as_int64() == 1);
  BOOST_TEST(loop.at("visits").as_int64() == 2);
  BOOST_TEST(loop.at("scale").as_double() == 0.5);
  BOOST_TEST(loop.at("order").as_string() == "span");
  BOOST_TEST(loop.at("kv").as_string() == "own");
  BOOST_TEST(!loop.at("visits_overridden").as_bool());
  for (const char* key : {"nats_per_token", "bits_per_byte", "tokens"}) {
    BOOST_TEST(o.at("overall").as_object().contains(key));
    BOOST_TEST(o.at("domains").at("web").as_object().contains(key));
  }
}

BOOST_AUTO_TEST_CASE(the_flops_are_those_at_the_mean_context_of_the_data) {
  const ScratchFolder scratch;
  const Evaluation e = evaluate(make_run(scratch, "run", 2));
  BOOST_TEST(e.mean_context > 1);
  BOOST_TEST(e.mean_context < (kSeqLen + 1) / 2.0);  // documents end within sequences
  BOOST_TEST(e.budget.flops_per_token == budget_of(e.model, e.mean_context).flops_per_token);
}

BOOST_AUTO_TEST_CASE(other_visits_need_the_option_and_are_recorded) {
  const ScratchFolder scratch;
  const std::string run = make_run(scratch, "run", 2);
  const Evaluation trained = evaluate(run), same = evaluate(run, {"--visits=2"});
  const Evaluation more = evaluate(run, {"--visits=3"});
  BOOST_TEST(same.domains[0].nats == trained.domains[0].nats);
  BOOST_TEST(!same.visits_overridden());
  BOOST_TEST(more.domains[0].nats != trained.domains[0].nats);
  BOOST_TEST(more.budget.executed_depth == 4);
  const json::object loop = evaluations_json({more}).at(0).at("loop").as_object();
  BOOST_TEST(loop.at("visits").as_int64() == 3);
  BOOST_TEST(loop.at("trained_visits").as_int64() == 2);
  BOOST_TEST(loop.at("visits_overridden").as_bool());
  BOOST_TEST(evaluations_table({more}).find("x 3 (trained x 2)") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_model_without_a_loop_takes_no_other_visits) {
  const ScratchFolder scratch;
  const std::string run = make_run(scratch, "run", 1);
  BOOST_CHECK_EXCEPTION(evaluate(run, {"--visits=2"}), ConfigError, says("has no looped span"));
  BOOST_CHECK_NO_THROW(evaluate(run, {"--visits=1"}));
}

BOOST_AUTO_TEST_CASE(the_table_fits_and_names_the_ratios_of_two) {
  const ScratchFolder scratch;
  const std::vector<Evaluation> two = {evaluate(make_run(scratch, "baseline", 1)),
                                       evaluate(make_run(scratch, "smelt", 2))};
  const std::string table = evaluations_table(two);
  for (const char* part :
       {"baseline", "smelt", "F  training FLOPs/token", "N  params", "KV values/token", "overall",
        "code", "web", "training tokens/s", "bits/byte"})
    BOOST_TEST(table.find(part) != std::string::npos, part << " is missing");
  size_t ratios = 0;
  for (const std::string& line : lines_of(table)) {
    BOOST_TEST(line.size() <= 100u, line);
    ratios += line.find("x 1.5") != std::string::npos || line.find("x 1.0") != std::string::npos;
  }
  BOOST_TEST(ratios == 3u);  // F and KV by 3 steps for 2, N by 1
  const std::string four = evaluations_table({two[0], two[1], two[0], two[1]});
  for (const std::string& line : lines_of(four)) BOOST_TEST(line.size() <= 100u, line);
  BOOST_TEST(lines_of(four).size() == 2 * lines_of(table).size() + 1);
}

BOOST_AUTO_TEST_CASE(prompts_alone_generate_alone) {
  const ScratchFolder scratch;
  const std::string run = make_run(scratch, "run", 2);
  std::string shown;
  const EvalOptions options = options_of({"--checkpoint=" + run, "--generate=a, b", "--generate=c",
                                          "--max-new-tokens=5", "--temperature=1", "--seed=4"});
  const Evaluation e = evaluate_checkpoint(run, options, dist::World(1),
                                           [&](const std::string& piece) { shown += piece; });
  BOOST_TEST(e.domains.empty());
  BOOST_REQUIRE(e.generations.size() == 2u);
  BOOST_TEST(e.generations[0].prompt == "a, b");
  BOOST_TEST(e.generations[0].tokens <= 5);
  BOOST_TEST(shown == join({"a, b", e.generations[0].text, "\nc", e.generations[1].text, "\n"}));
  const Evaluation again = evaluate_checkpoint(run, options, dist::World(1));
  BOOST_TEST(again.generations[0].text == e.generations[0].text);
  BOOST_TEST(again.mean_context == 4);  // of the training data
}

BOOST_AUTO_TEST_CASE(settings_that_nothing_tells_are_asked_for) {
  const ScratchFolder scratch;
  const std::string run = make_run(scratch, "run", 1);
  const std::string checkpoint = run + "/checkpoints/step-7";
  std::filesystem::remove(checkpoint + "/config.ini");
  BOOST_CHECK_EXCEPTION(evaluate(checkpoint), ConfigError, says("--seq-len=N is needed"));
  BOOST_CHECK_EXCEPTION(evaluate(checkpoint, {"--seq-len=8"}), ConfigError, says("--data=DOMAIN"));
  BOOST_CHECK_EXCEPTION(evaluate(checkpoint, {"--seq-len=65"}), ConfigError,
                        says("must be at most 64"));
  const std::string data = "--data=web=" + scratch.path("web.valid");
  const Evaluation e = evaluate(checkpoint, {"--seq-len=8", data});
  BOOST_TEST(e.document_mask);
  BOOST_TEST(e.domains.size() == 1u);
}

BOOST_AUTO_TEST_CASE(bad_options_name_themselves) {
  BOOST_CHECK_EXCEPTION(options_of({}), ConfigError, says("--checkpoint=DIR is required"));
  const auto refused = [](const std::string& option, const std::string& text) {
    BOOST_CHECK_EXCEPTION(options_of({"--checkpoint=x", option}), ConfigError, says(text));
  };
  refused("--data=web", "--data=web: must be domain=prefix");
  refused("--data=web=a,web=b", "domain 'web' is given twice");
  refused("--data=overall=a", "'overall' is the name of the sum");
  refused("--figure=x.pdf", "must end in .svg or .png");
  refused("--visits=-1", "--visits=-1: must be a whole number");
  refused("--top-p=0", "top_p");
  refused("--dtype=f16", "must be f32|bf16");
}

BOOST_AUTO_TEST_CASE(curves_hold_every_run) {
  const ScratchFolder scratch;
  const std::string run = make_run(scratch, "run", 1);
  const Figure figure = loss_curves({{"a", run}, {"b", run}});
  BOOST_REQUIRE(figure.series.size() == 4u);
  BOOST_TEST(figure.series[0].name == "a, training");
  BOOST_TEST(figure.series[0].x == (std::vector<double>{64, 128, 192, 256, 320}));
  BOOST_TEST(figure.series[0].y == (std::vector<double>{5, 4, 3, 2, 1}));
  BOOST_TEST(figure.series[3].points);
  BOOST_TEST(figure.series[3].x == std::vector<double>{320});
  BOOST_TEST(figure.series[3].y == std::vector<double>{1.5});
}

BOOST_AUTO_TEST_CASE(smoothing_keeps_lines_straight_and_leaves_gaps_out) {
  const double gap = std::nan("");
  BOOST_TEST(smoothed({1, 2, 3, 4, 5}, 1) == (std::vector<double>{1.5, 2, 3, 4, 4.5}));
  BOOST_TEST(smoothed({1, gap, 3}, 1) == (std::vector<double>{1, 2, 3}));
  BOOST_TEST(smoothed({1, 2, 3}, 0) == (std::vector<double>{1, 2, 3}));
  BOOST_TEST(std::isnan(smoothed({gap}, 2).at(0)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
