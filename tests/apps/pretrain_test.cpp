// The program smelt-pretrain: what it leaves behind, and how it refuses what cannot be trained.
#include <map>

#include "apps/common/config.h"
#include "apps/common/sha256.h"
#include "moe/budget.h"
#include "tests/apps/event_records.h"
#include "tests/apps/pretrain_runs.h"

namespace smelt::testing {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

Words keys_of(const json::object& object) {
  Words keys;
  for (const auto& member : object) keys.push_back(std::string(member.key()));
  return keys;
}

/// One message, told once, with the exit code of bad input, soon.
void check_refused(const Program::Outcome& outcome, const std::string& text, double seconds) {
  BOOST_TEST_CONTEXT(text << ":\n" << outcome.err) {
    BOOST_TEST(outcome.code == 2);
    BOOST_TEST(count_of(outcome.err, "error:") == 1u);
    BOOST_TEST(outcome.err.find(text) != std::string::npos);
    BOOST_TEST(outcome.out.empty());
    BOOST_TEST(outcome.seconds < seconds);
  }
}

BOOST_AUTO_TEST_SUITE(pretrain)

BOOST_AUTO_TEST_CASE(metrics_and_endpoints_have_every_key) {
  const std::string& run = Common::get().straight();
  const Words step_keys = {"step",
                           "tokens",
                           "loss",
                           "lr",
                           "grad_norm",
                           "tokens_per_second",
                           "flops_per_second",
                           "mfu",
                           "aux_loss",
                           "z_loss",
                           "load_max_over_mean",
                           "dropped",
                           "skipped_steps",
                           "rss_bytes",
                           "seconds"};
  int64_t steps = 0, evaluations = 0;
  double first = 0, last = 0;
  for (const json::object& line : read_jsonl(run + "/metrics.jsonl")) {
    if (line.contains("valid")) {
      ++evaluations;
      BOOST_TEST(keys_of(line.at("valid").as_object()) == (Words{"overall", "v"}));
      BOOST_TEST(line.at("valid").at("v").at("bits_per_byte").is_double());
      continue;
    }
    ++steps;
    BOOST_TEST(keys_of(line) == step_keys);
    BOOST_TEST(line.at("step").as_int64() == steps);
    BOOST_TEST(line.at("tokens").as_int64() == steps * kStepTokens);
    BOOST_TEST(line.at("mfu").is_null());
    BOOST_TEST(line.at("dropped").as_int64() == 0);
    const json::array& loads = line.at("load_max_over_mean").as_array();
    BOOST_REQUIRE(loads.size() == 4u);  // three layers, the middle one twice
    BOOST_TEST(loads[2].at("layer").as_int64() == 1);
    BOOST_TEST(loads[2].at("visit").as_int64() == 1);
    for (const json::value& load : loads) BOOST_TEST(load.at("value").as_double() >= 1);
    for (const char* key :
         {"grad_norm", "tokens_per_second", "flops_per_second", "aux_loss", "z_loss", "seconds"})
      BOOST_TEST(line.at(key).as_double() > 0, key);
    last = line.at("loss").as_double();
    if (steps == 1) first = last;
  }
  BOOST_TEST(steps == kSteps);
  BOOST_TEST(evaluations == kSteps / 4);
  BOOST_TEST(last < first - 0.5);

  const auto ends = read_jsonl(run + "/endpoints.jsonl");
  BOOST_REQUIRE(ends.size() == 1u);
  BOOST_TEST(keys_of(ends[0]) == (Words{"arch", "cell", "flops_per_token", "params_non_embedding",
                                        "sparsity", "kv_bytes_per_token", "tokens", "loss",
                                        "loss_by_domain", "seed", "config_sha256"}));
  BOOST_TEST(ends[0].at("arch").as_string() == "smelt");
  const ModelConfig model = load_config(run + "/config.ini").config.model;
  const double context = json::parse(read_file(step_folder(run, kSteps) + "/trainer_state.json"))
                             .at("mean_context")
                             .as_double();
  BOOST_TEST(ends[0].at("sparsity").as_double() ==
             sparsity(budget_of(model, context), budget_of(control_of(model), context)));
  BOOST_TEST(ends[0].at("cell").as_string() == "straight");
  BOOST_TEST(ends[0].at("tokens").as_int64() == kSteps * kStepTokens);
  BOOST_TEST(ends[0].at("config_sha256").as_string() ==
             sha256_of_files({run + "/config.ini"}).front());
  const json::object valid = read_jsonl(run + "/metrics.jsonl").back().at("valid").as_object();
  BOOST_TEST(ends[0].at("loss") == valid.at("overall").at("nats_per_token"));
  BOOST_TEST(ends[0].at("loss_by_domain").at("v") == valid.at("v").at("nats_per_token"));
}

BOOST_AUTO_TEST_CASE(tensorboard_shows_what_metrics_hold) {
  const std::string& run = Common::get().straight();
  std::map<std::pair<int64_t, std::string>, float> numbers;
  int pictures = 0, texts = 0;
  for (const auto& file : fs::directory_iterator(run + "/tensorboard/trunk")) {
    for (const ReadEvent& event : read_events(file.path().string())) {
      for (const ReadValue& value : event.values) {
        if (value.has_number) numbers[{event.step, value.tag}] = value.number;
        pictures += !value.png.empty();
        texts += value.tag == "config" && value.text.find("[model]") != std::string::npos;
      }
    }
  }
  size_t expected = 0;
  for (const json::object& line : read_jsonl(run + "/metrics.jsonl")) {
    const int64_t step = line.at("step").as_int64();
    const auto check = [&](const std::string& tag, const json::value& value) {
      if (value.is_null()) return;
      ++expected;
      BOOST_TEST((numbers.at({step, tag}) == float(value.to_number<double>())), tag);
    };
    if (line.contains("valid")) {
      for (const auto& [domain, losses] : line.at("valid").as_object())
        for (const char* key : {"nats_per_token", "bits_per_byte", "tokens"})
          check(join({"valid/", std::string(domain), "/", key}), losses.at(key));
      continue;
    }
    for (const auto& [key, value] : line)
      if (key != "step" && key != "load_max_over_mean") check("train/" + std::string(key), value);
    for (const json::value& load : line.at("load_max_over_mean").as_array())
      check(join({"load_max_over_mean/layer ", json::serialize(load.at("layer")), " visit ",
                  json::serialize(load.at("visit"))}),
            load.at("value"));
  }
  BOOST_TEST(numbers.size() == expected);
  BOOST_TEST(texts == 1);
  // A picture at each evaluation where there is gnuplot.
  const bool drawn = fs::exists(run + "/loss.svg");
  BOOST_TEST(pictures == (drawn ? kSteps / 4 : 0));
  BOOST_TEST(fs::exists(run + "/loss.tsv"));
  BOOST_TEST(!fs::exists(run + "/.loss.png"));
}

BOOST_AUTO_TEST_CASE(the_summaries_tell_what_runs_and_what_came_of_it) {
  const Common& common = Common::get();
  const std::string run = common.new_run();
  const Program::Outcome outcome =
      Program(common.command(run, {"--train.tokens=" + std::to_string(4 * kStepTokens),
                                   "--optim.warmup_tokens=128", "--optim.decay_tokens=128",
                                   "--run.tensorboard=false"}))
          .wait();
  BOOST_TEST(outcome.code == 0);
  for (const char* part :
       {"model     smelt: 3 layers, 4 executed", "budget    F ", "layout    1 rank = 1 data x 1",
        "data      ", "run       4 steps of ", "time      about ", "done      step 4 of 4",
        "speed     ", "memory    ", "valid     v ", "next      smelt-eval --checkpoint "})
    BOOST_TEST(outcome.err.find(part) != std::string::npos, part << " in\n" << outcome.err);
  BOOST_TEST(!fs::exists(run + "/tensorboard"));
}

BOOST_AUTO_TEST_CASE(a_profile_shows_every_layer_and_visit_and_all_flops) {
  const Common& common = Common::get();
  const std::string run = common.new_run(), trace = run + ".trace.json";
  const Words options = {"--train.tokens=" + std::to_string(8 * kStepTokens),
                         "--optim.warmup_tokens=0", "--optim.decay_tokens=0", "--profile=" + trace,
                         "--profile-steps=2"};
  const auto outcome = Program(common.command(run, options)).wait();
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  BOOST_TEST(outcome.err.find("profile of 2 steps") != std::string::npos, outcome.err);
  const json::value document = json::parse(read_file(trace));
  std::map<std::string, int> slices;
  double flops = 0;
  for (const json::value& event : document.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    if (event.at("tid").as_int64() < 2) ++slices[event.at("name").as_string().c_str()];
    if (const json::value* counted = event.at("args").as_object().if_contains("flops"))
      flops += counted->to_number<double>();
  }
  BOOST_TEST(slices["step 3"] == 1);
  BOOST_TEST(slices["step 4"] == 1);
  BOOST_TEST(slices.count("step 5") == 0u);
  for (const char* scope :
       {"layer 0 visit 0", "layer 1 visit 0", "layer 1 visit 1", "layer 2 visit 0"})
    for (const char* direction : {" forward", " backward"})
      BOOST_TEST(slices[std::string(scope) + direction] >= 2, scope << direction);
  const ModelConfig model = load_config(run + "/config.ini").config.model;
  // Documents differ from step to step: between a mean context of 1 and a full window.
  const Budget least = budget_of(model, 1), most = budget_of(model, 16.5);
  BOOST_TEST(flops > 2 * kStepTokens * least.flops_per_token);
  BOOST_TEST(flops <= 2 * kStepTokens * (most.flops_per_token + most.flops_head));

  const auto refused =
      Program(common.command(common.new_run(), {"--profile=" + run + "/none/trace.json"})).wait();
  check_refused(refused, "--profile=" + run + "/none/trace.json", 5);
}

BOOST_AUTO_TEST_CASE(the_mean_context_is_that_of_all_data_on_any_ranks) {
  const Common& common = Common::get();
  const Words options = {"--train.tokens=256", "--optim.warmup_tokens=0", "--optim.decay_tokens=0",
                         "--run.peak_flops=2e9"};
  double alone = 0;
  for (const int ranks : {1, 2}) {
    const std::string run = common.new_run();
    const Words words =
        ranks == 1 ? common.command(run, options) : common.mpirun(ranks, run, options);
    const auto outcome = Program(words).wait();
    BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    const double mean = json::parse(read_file(step_folder(run, 2) + "/trainer_state.json"))
                            .at("mean_context")
                            .as_double();
    if (ranks == 1) alone = mean;
    BOOST_TEST(mean == alone);
    BOOST_TEST(mean > 1);
    BOOST_TEST(mean < 16.5);  // documents end inside the windows
    for (const json::object& line : read_jsonl(run + "/metrics.jsonl")) {
      if (line.contains("valid")) continue;
      BOOST_CHECK_CLOSE(line.at("mfu").as_double(),
                        line.at("flops_per_second").as_double() / (2e9 * ranks), 1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(data_without_a_tokenizer_trains_without_the_mask) {
  const Common& common = Common::get();
  const ScratchFolder bare;
  write_tokens(bare.path("t"), made_up_text(500, 5));
  const auto outcome =
      Program(
          common.command(common.new_run(),
                         {"--data.train=t=" + bare.path("t"), "--data.valid=t=" + bare.path("t"),
                          "--train.document_mask=false", "--train.tokens=256",
                          "--optim.warmup_tokens=0", "--optim.decay_tokens=0"}))
          .wait();
  BOOST_TEST(outcome.code == 0, outcome.err);
}

BOOST_AUTO_TEST_CASE(old_checkpoints_go_and_overwrite_begins_again) {
  const Common& common = Common::get();
  const std::string run = common.new_run();
  const Words options = {"--run.keep=2", "--train.tokens=640", "--optim.warmup_tokens=0",
                         "--optim.decay_tokens=0"};
  BOOST_TEST(Program(common.command(run, options)).wait().code == 0);
  std::vector<int64_t> steps;
  for (const Checkpoint& c : RunFolder(run).list_checkpoints()) steps.push_back(c.step);
  BOOST_TEST(steps == (std::vector<int64_t>{4, 5}));
  Words again = options;
  again[1] = "--train.tokens=256";
  again.push_back("--overwrite");
  BOOST_TEST(Program(common.command(run, again)).wait().code == 0);
  BOOST_TEST(metrics_of(run).size() == 3u);
  BOOST_TEST(RunFolder(run).latest_checkpoint()->step == 2);
}

BOOST_AUTO_TEST_CASE(a_run_may_begin_with_the_weights_of_a_folder) {
  const Common& common = Common::get();
  const std::string run = common.new_run(), from = common.straight();
  // A learning rate that changes no bit: the first checkpoint holds what the run began with.
  const Words still = {"--optim.lr=1e-30", "--train.tokens=128", "--optim.warmup_tokens=0",
                       "--optim.decay_tokens=0", "--run.init=" + from};
  const auto outcome = Program(common.lone_command(run, still)).wait();
  BOOST_REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  BOOST_TEST(outcome.err.find("begins with the weights of " + step_folder(from, kSteps)) !=
             std::string::npos);
  BOOST_CHECK(read_file(step_folder(run, 1) + "/model.safetensors") ==
              read_file(step_folder(from, kSteps) + "/model.safetensors"));
  // Other visits are told, other sizes are refused before the folder is touched.
  Words options = still;
  options.push_back("--loop.visits=3");
  const auto other = Program(common.lone_command(common.new_run(), options)).wait();
  BOOST_TEST(other.code == 0);
  BOOST_TEST(other.err.find("loop.visits = 3 (there 2)") != std::string::npos, other.err);
  const std::string refused = common.new_run();
  options.back() = "--model.expert_hidden_size=12";
  check_refused(Program(common.lone_command(refused, options)).wait(),
                "model.expert_hidden_size = 8 there, but 12 in this configuration", 20);
  BOOST_TEST(!fs::exists(refused));
}

BOOST_AUTO_TEST_CASE(input_that_cannot_be_trained_ends_with_code_2_and_one_line) {
  const Common& common = Common::get();
  const ScratchFolder bad;
  const auto copy = [&](const std::string& name) {
    for (const char* suffix : {".bin", ".idx"})
      fs::copy_file(common.path("a") + suffix, bad.path(name) + suffix);
    return bad.path(name);
  };
  const auto change = [&](const std::string& path, const std::function<void(std::string&)>& f) {
    std::string bytes = read_file(path);
    f(bytes);
    write_file(path, bytes);
  };
  const auto train = [](const std::string& prefix) { return "--data.train=a=" + prefix; };
  ByteTokenizer().save(bad.path());
  fs::remove(copy("no_bin") + ".bin");
  fs::remove(copy("no_idx") + ".idx");
  change(copy("cut_bin") + ".bin", [](std::string& b) { b.resize(b.size() - 2); });
  change(copy("cut_idx") + ".idx", [](std::string& b) { b.resize(b.size() - 8); });
  change(copy("empty_idx") + ".idx", [](std::string& b) { b.clear(); });
  change(copy("foreign") + ".idx", [](std::string& b) { b.replace(0, 4, "PARQ"); });
  change(copy("wide_id") + ".bin", [](std::string& b) { b[201] = '\x7f'; });
  write_tokens(bad.path("short"), counting(32));
  fs::create_directories(bad.path("bare"));
  for (const char* suffix : {".bin", ".idx"})
    fs::copy_file(common.path("a") + suffix, bad.path("bare/a") + suffix);
  write_file(bad.path("text.json"), "a tokenizer?");
  write_file(bad.path("bpe.json"), R"({"model": {"type": "BPE", "vocab": {"a": 0}}})");
  write_file(bad.path("file"), "");
  write_file(bad.path("empty.ini"), "");
  const std::string ini_folder = bad.path("ini_folder");
  fs::create_directories(ini_folder + "/config.ini");

  const std::string damaged = stand_at(20);
  fs::resize_file(step_folder(damaged, 20) + "/model.safetensors", 64);
  const std::string holding = stand_at(20);

  const struct {
    Words options;
    std::string text;
  } kCases[] = {
      {{train(bad.path("no_bin"))}, "no_bin.bin: cannot read"},
      {{train(bad.path("no_idx"))}, "no_idx.idx: cannot read"},
      {{train(bad.path("cut_bin"))}, "cut_bin.bin"},
      {{train(bad.path("cut_idx"))}, "cut_idx.idx"},
      {{train(bad.path("empty_idx"))}, "empty_idx.idx: 0 bytes"},
      {{train(bad.path("foreign"))}, "foreign.idx: does not start with MMIDIDX"},
      {{train(bad.path("wide_id"))}, "wide_id.bin"},
      {{train(bad.path("short"))}, "has 32 tokens; one window needs seq_len + 1 = 33"},
      {{"--data.valid=v=" + bad.path("no_idx")}, "no_idx.idx"},
      {{"--data.valid=v=" + bad.path("wide_id")}, "wide_id.bin"},
      {{"--config=" + bad.path("empty.ini")}, "[data] train is empty"},
      {{train(common.path("a")) + ", a=" + common.path("b")}, "'a' is given twice"},
      {{"--model.vocab_size=256"}, "model.vocab_size = 256 is below the tokenizer's 257"},
      {{train(bad.path("bare/a"))}, "data.tokenizer is needed for train.document_mask"},
      {{"--data.tokenizer=" + bad.path("text.json")}, "text.json: not valid JSON"},
      {{"--data.tokenizer=" + bad.path("bpe.json")}, "bpe.json: pre_tokenizer is absent or null"},
      {{"--data.tokenizer=" + bad.path("none.json")}, "none.json: cannot read"},
      {{"--run.dir=" + damaged, "--resume"}, "model.safetensors: 64 bytes instead of"},
      {{"--run.dir=" + holding}, "already holds a run; give --resume"},
      {{"--run.dir=" + holding, "--optim.lr=0.5"}, "optim.lr 0.01 -> 0.5"},
      {{"--resume", "--overwrite"}, "--resume and --overwrite exclude each other"},
      {{"--run.dir=" + bad.path("file")}, "file: cannot create the folder"},
      {{"--run.dir=" + bad.path("file") + "/run"}, "cannot create the folder"},
      {{"--run.dir=" + ini_folder}, "config.ini"},
      {{"--run.dir=" + bad.path(std::string(300, 'x'))}, "name too long"},
      {{"--run.dir=/proc/run"}, "/proc/run: cannot create the folder"},
      {{"--loop.start=2", "--loop.layers=2"}, "the span must lie inside the stack"},
      {{"--dist.expert_parallel=2"}, "must divide the number of ranks, 1"},
      {{"--train.global_batch=5"},
       "global_batch must be a multiple of ranks x micro_batch = 1 x 2"},
      {{"--train.seq_len=128"}, "seq_len must be at most max_seq_len"},
      {{"--config=" + bad.path("none.ini")}, "none.ini: cannot be read"},
  };
  int number = 0;
  for (const auto& c : kCases) {
    const std::string fresh = bad.path("run" + std::to_string(++number));
    Words words = common.lone_command(fresh);
    for (const std::string& option : c.options) {
      if (option.starts_with("--run.dir=")) words.erase(words.begin() + 5);
      if (option.starts_with("--config=")) words.erase(words.begin() + 3, words.begin() + 5);
      words.push_back(option);
    }
    const auto outcome = Program(words).wait();
    check_refused(outcome, c.text, 10);
    BOOST_TEST(count_of(outcome.err, "\n") ==
                   1u + count_of(outcome.err, "passing over a damaged checkpoint"),
               outcome.err);
    BOOST_TEST(!fs::exists(fresh));  // bad input leaves no run behind
  }
  BOOST_TEST(is_complete(step_folder(holding, 20)));
}

BOOST_AUTO_TEST_CASE(under_mpirun_one_message_ends_all_ranks) {  // CASE 110
  const Common& common = Common::get();
  const std::string run = common.new_run();
  const struct {
    int ranks;
    Words options;
    std::string text;
  } kCases[] = {
      {2,
       {"--model.num_experts=5", "--dist.expert_parallel=2"},
       "num_experts must be a multiple of expert_parallel"},
      {3, {"--dist.expert_parallel=2"}, "must divide the number of ranks, 3"},
      {2, {"--train.global_batch=6"}, "ranks x micro_batch = 2 x 2"},
      {2, {"--data.train=a=" + common.path("none")}, "none.idx: cannot read"},
      {2, {"--resume", "--overwrite"}, "exclude each other"},
  };
  for (const auto& c : kCases)
    check_refused(Program(common.mpirun(c.ranks, run, c.options)).wait(), c.text, 10);

  // Rank 1 alone cannot read its data, while rank 0 waits for it.
  Words words = common.mpirun(1, run);
  for (const char* word : {":", "-np", "1"}) words.push_back(word);
  for (const std::string& word : common.command(run, {"--data.train=a=" + common.path("none")}))
    words.push_back(word);
  check_refused(Program(words).wait(), "none.idx: cannot read", 10);
  BOOST_TEST(!fs::exists(run + "/checkpoints/step-1"));
}

BOOST_AUTO_TEST_CASE(a_save_that_fails_ends_all_ranks) {  // CASES 86, 110
  const Common& common = Common::get();
  const std::string run = common.new_run();
  // A folder that nobody can write: a file has its name.
  fs::create_directories(run + "/checkpoints");
  write_file(run + "/checkpoints/step-2", "in the way");
  const auto outcome = Program(common.mpirun(2, run)).wait();
  BOOST_TEST(outcome.code != 0);
  BOOST_TEST(count_of(outcome.err, "error:") == 1u, outcome.err);
  BOOST_TEST(outcome.err.find("step-2") != std::string::npos);
  BOOST_TEST(outcome.seconds < 15);
  BOOST_TEST(is_complete(step_folder(run, 1)));
  BOOST_TEST(metrics_of(run).size() == 2u);  // no step on a checkpoint that was not saved
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
