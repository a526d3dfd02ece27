// The configuration: where values come from, what is written back, and what is suggested for a
// typo.
#include "apps/common/config.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <boost/test/unit_test.hpp>

#include "apps/common/config_schema.h"
#include "apps/common/run_folder.h"

using namespace smelt;

namespace {

LoadedConfig load(const std::string& ini, const std::vector<std::string>& overrides = {}) {
  std::vector<Setting> settings;
  for (const std::string& text : overrides)
    settings.push_back({text.substr(0, text.find('=')), text.substr(text.find('=') + 1),
                        Origin{Origin::Kind::command_line, "", 0, ""}});
  return merge_config(read_ini_text(ini, "test.ini"), settings);
}

// Another allowed value of a key, as text.
std::string another_value(const ConfigKey& key) {
  const std::string now = key.get(RunConfig{});
  for (const std::string candidate : {"7", "3", "0.5", "0.25", "true", "false", "layer", "first",
                                      "bias", "batch", "bf16", "block", "cosine", "cuda", "64, 128",
                                      "code=data/code:0.5, web=data/web", "some/path.json"}) {
    RunConfig scratch;
    if (key.set(scratch, candidate) && key.get(scratch) != now) return candidate;
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config)

BOOST_AUTO_TEST_CASE(defaults_alone_are_valid_on_one_two_and_four_ranks) {
  const LoadedConfig loaded = load("");
  for (const int ranks : {1, 2, 4}) BOOST_CHECK_NO_THROW(validate(loaded, ranks));
}

BOOST_AUTO_TEST_CASE(every_key_reads_its_default_and_another_value) {
  BOOST_TEST(config_schema().size() > 50u);
  for (const ConfigKey& key : config_schema()) {
    BOOST_TEST_CONTEXT("key " << key.name()) {
      RunConfig config;
      BOOST_TEST(key.set(config, key.get(config)));
      const std::string value = another_value(key);
      BOOST_REQUIRE(!value.empty());
      BOOST_TEST(key.set(config, value));
      // One key changes one value and no other.
      const auto differences = config_differences(RunConfig{}, config);
      BOOST_REQUIRE_EQUAL(differences.size(), 1u);
      BOOST_TEST(differences.front().key == key.name());
      BOOST_TEST(!key.help.empty());
      BOOST_TEST(!key.set(config, "no such value #"));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_written_file_reads_back_to_the_same_values) {
  std::vector<std::string> overrides;
  for (const ConfigKey& key : config_schema())
    overrides.push_back(key.name() + "=" + another_value(key));
  for (const RunConfig& config : {load("").config, load("", overrides).config}) {
    const std::string text = write_ini(config);
    const RunConfig again = parse_config(text);
    BOOST_TEST(config_differences(config, again).empty());
    BOOST_TEST(write_ini(again) == text);
  }
}

BOOST_AUTO_TEST_CASE(numbers_survive_writing_and_reading_exactly) {
  for (const double value : {1e-3, 0.1, 1.0 / 3, 2.9e-4, 1e-8, 123456789.125}) {
    double again = 0;
    BOOST_TEST(parse_number(number_text(value), &again));
    BOOST_TEST(again == value);
  }
}

BOOST_AUTO_TEST_CASE(command_line_leads_over_file_and_file_over_default) {
  const LoadedConfig loaded = load("[optim]\nlr = 1e-3\nbeta1 = 0.8\n", {"optim.lr=2e-3"});
  BOOST_TEST(loaded.config.optim.lr == 2e-3);
  BOOST_TEST(loaded.config.optim.beta1 == 0.8);
  BOOST_TEST(loaded.config.optim.beta2 == 0.95);
  BOOST_TEST(loaded.origins.at("optim.lr").text() == "command line");
  BOOST_TEST(loaded.origins.at("optim.beta1").text() == "test.ini:3");
  BOOST_TEST(loaded.origins.at("optim.beta2").text() == "default");
}

BOOST_AUTO_TEST_CASE(the_dry_run_text_names_each_source_and_still_parses) {
  const LoadedConfig loaded = load(
      "# first run\n\n[train]\n  tokens=1000000 # short\r\n"
      "[model]\nhidden_size = 64\n",
      {"model.num_layers=6"});
  const std::string text = write_ini_with_origins(loaded);
  BOOST_TEST(text.find("hidden_size = 64") != std::string::npos);
  BOOST_TEST(text.find("# test.ini:6") != std::string::npos);
  BOOST_TEST(text.find("# test.ini:4") != std::string::npos);
  BOOST_TEST(text.find("# command line") != std::string::npos);
  BOOST_TEST(text.find("# default") != std::string::npos);
  BOOST_TEST(text.find("warmup_tokens = 20000") != std::string::npos);
  BOOST_TEST(text.find("# derived: 2 % of train.tokens") != std::string::npos);
  BOOST_TEST(config_differences(parse_config(text), loaded.config).empty());
}

BOOST_AUTO_TEST_CASE(automatic_warmup_and_decay_follow_the_shortest_branch) {
  const RunConfig plain = load("[train]\ntokens = 1000000\n").config;
  BOOST_TEST(plain.optim.warmup_tokens == 20000);
  BOOST_TEST(plain.optim.decay_tokens == 200000);
  const LoadedConfig branched =
      load("[train]\ntokens = 1000000\n[optim]\nbranch_tokens = 100000, 500000\n");
  BOOST_TEST(branched.config.optim.decay_tokens == 20000);
  BOOST_CHECK_NO_THROW(validate(branched, 1));
  const RunConfig given = load("[optim]\nwarmup_tokens = 0\ndecay_tokens = 0\n").config;
  BOOST_TEST(given.optim.warmup_tokens == 0);
  BOOST_TEST(given.optim.decay_tokens == 0);
}

BOOST_AUTO_TEST_CASE(warmup_may_fill_the_whole_run) {
  const LoadedConfig loaded = load(
      "[train]\ntokens = 8192\n[optim]\nwarmup_tokens = 8192\n"
      "decay_tokens = 0\n");
  BOOST_CHECK_NO_THROW(validate(loaded, 1));
}

BOOST_AUTO_TEST_CASE(data_sources_are_joined_within_a_source_and_replaced_between_sources) {
  const std::string ini =
      "[data]\ntrain = code=data/code:2, web=data/web\ntrain = math=data/math\n";
  const RunConfig file = load(ini).config;
  BOOST_REQUIRE_EQUAL(file.data.train.size(), 3u);
  BOOST_TEST((file.data.train[0] == DataSource{"code", "data/code", 2}));
  BOOST_TEST((file.data.train[1] == DataSource{"web", "data/web", 1}));
  BOOST_TEST((file.data.train[2] == DataSource{"math", "data/math", 1}));
  const RunConfig both = load(ini, {"data.train=law=data/law", "data.train=web=x:0.5"}).config;
  BOOST_REQUIRE_EQUAL(both.data.train.size(), 2u);
  BOOST_TEST((both.data.train[0] == DataSource{"law", "data/law", 1}));
  BOOST_TEST((both.data.train[1] == DataSource{"web", "x", 0.5}));
}

BOOST_AUTO_TEST_CASE(steps_are_rounded_up_to_cover_the_tokens) {
  RunConfig config;
  config.train.seq_len = 100;
  config.train.global_batch = 10;
  config.train.tokens = 10001;
  BOOST_TEST(config.tokens_per_step() == 1000);
  BOOST_TEST(config.total_steps() == 11);
}

BOOST_AUTO_TEST_CASE(a_single_expert_is_a_dense_model_and_may_renormalise) {
  const LoadedConfig dense = load("[model]\nnum_experts = 1\ntop_k = 1\n");
  BOOST_CHECK_NO_THROW(validate(dense, 1));
  const LoadedConfig top1 = load("[model]\ntop_k = 1\nnorm_topk = false\n");
  BOOST_CHECK_NO_THROW(validate(top1, 1));
}

BOOST_AUTO_TEST_CASE(nearest_key_is_the_one_that_was_meant) {
  const std::vector<std::pair<std::string, std::string>> meant = {
      {"optim.learnin_rate", "[optim] lr"},
      {"model.hidden", "[model] hidden_size"},
      {"model.num_expert", "[model] num_experts"},
      {"model.seq_len", "[train] seq_len"},
      {"train.lr", "[optim] lr"},
      {"loop.visit", "[loop] visits"},
      {"train.batch_size", "[train] global_batch"},
      {"model.layers", "[model] num_layers"},
      {"loop.layer", "[loop] layers"},
      {"run.chekpoint_every", "[run] checkpoint_every"},
      {"moe.Balance", "[moe] balance"},
      {"model.d_model", "[model] hidden_size"},
      {"seq_len", "[train] seq_len"}};
  for (const auto& [word, key] : meant)
    BOOST_TEST(config_key_hint(word) == "; did you mean " + key + "?",
               word << config_key_hint(word));
  BOOST_TEST(config_key_hint("model.xyzzyplugh") == "");
}

BOOST_AUTO_TEST_CASE(document_of_all_keys_is_up_to_date) {
  const std::string path = std::string(SMELT_SOURCE_DIR) + "/docs/configuration.md";
  if (std::getenv("SMELT_UPDATE_DOCS") != nullptr) std::ofstream(path) << config_markdown();
  BOOST_TEST((read_text_file(path) == config_markdown()),
             "docs/configuration.md differs from the table of keys; run this suite once with "
             "SMELT_UPDATE_DOCS=1");
}

BOOST_AUTO_TEST_SUITE_END()
