// Checkpoints as files: the same bytes from any layout of ranks, loadable into any, every bit kept,
// and what does not fit refused by name. The cases about layouts mean something with several ranks;
// those about one process run with one rank only.
#include "apps/common/checkpoint.h"

#include <map>
#include <set>

#include <boost/json.hpp>

#include "apps/common/exact_json.h"
#include "apps/common/model_json.h"
#include "apps/common/safetensors.h"
#include "tests/apps/scratch_folder.h"
#include "tests/moe/moments.h"
#include "tests/moe/ranks.h"

namespace smelt::testing {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr AdamWConfig kAdamW{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

/// One scratch folder for all ranks; it goes once all are done with it.
class SharedFolder {
 public:
  SharedFolder() : world_(1) {
    if (world_.world().rank() == 0) folder_ = std::make_unique<ScratchFolder>();
    path_ = dist::broadcast(folder_ ? folder_->path() : "", 0, world_.world());
  }
  ~SharedFolder() { dist::barrier(world_.world()); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  dist::World world_;
  std::unique_ptr<ScratchFolder> folder_;
  std::string path_;
};

/// A model with its optimizer in one layout.
struct Trained {
  explicit Trained(const dist::World& w, DType dtype = DType::f32,
                   const ModelConfig& config = tiny_config(), uint64_t seed = 1,
                   const AdamWConfig& adamw = kAdamW)
      : world(w),
        model(make_model(config, dtype, w, seed)),
        optimizer(model->parameters(), w, adamw) {}

  /// One step on a fixed batch that only `number` chooses, spread over the ranks of the layout.
  void step(uint64_t number, const BalanceConfig& balance = {}) {
    train_step(*model, optimizer, world, part_of(random_batch(8, 8, number), world),
               {.lr = 1e-2, .balance = balance});
  }
  void save(const std::string& path, TrainerState state = {}) {
    RunConfig config;
    config.model = model->config();
    config.dist.expert_parallel = world.expert_parallel().size();
    state.optimizer_steps = optimizer.steps();
    save_checkpoint(path, *model, optimizer, world, state, config, {"{}", "{}", 63});
  }
  TrainerState load(const std::string& path, const RunConfig& config = {}) {
    return load_checkpoint(path, *model, optimizer, config);
  }
  NamedTensors masters() {
    return named(model->parameters(), [&](const Parameter& p) { return optimizer.master(p); });
  }
  NamedTensors moments(ShardedOptimizer::Moment which) {
    const std::vector<Tensor> all = whole_moments(optimizer, model->parameters(), which);
    size_t next = 0;
    return named(model->parameters(), [&](const Parameter&) { return all[next++]; });
  }
  Tensor logits() {
    const ModelInput input = random_batch(2, 8, 99).input();
    return model->logits(model->hidden(input)).data();
  }

  dist::World world;
  std::unique_ptr<MoeTransformer> model;
  ShardedOptimizer optimizer;
};

void check_same_state(Trained& a, Trained& b) {
  using Moment = ShardedOptimizer::Moment;
  check_named_same_bits(a.masters(), b.masters());
  check_named_same_bits(values_of(*a.model), values_of(*b.model));
  check_named_same_bits(a.moments(Moment::first), b.moments(Moment::first));
  check_named_same_bits(a.moments(Moment::second), b.moments(Moment::second));
  BOOST_TEST(a.optimizer.steps() == b.optimizer.steps());
}

/// Files whose bytes depend on the run, not on where or on how many ranks it ran.
const std::vector<std::string> kFiles = {"model.safetensors", "optimizer.safetensors",
                                         "trainer_state.json", "config.json"};

boost::test_tools::assertion_result alone(boost::unit_test::test_unit_id) {
  return number_of_ranks() == 1;
}

/// Writes a safetensors file again with its tensors changed.
void rewrite(const std::string& folder, const std::string& prefix,
             const std::function<void(std::map<std::string, Tensor>&)>& edit) {
  std::map<std::string, Tensor> tensors;
  {
    const SafetensorsFolder files(folder, prefix);
    for (const std::string& name : files.names()) tensors[name] = files.read(name);
  }
  edit(tensors);
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors)
    specs.push_back({name, tensor.dtype(), tensor.shape()});
  SafetensorsWriter writer(folder + "/" + prefix + ".safetensors", specs);
  for (const TensorSpec& spec : writer.order()) writer.write(spec.name, tensors.at(spec.name));
  writer.publish();
}

/// Changes an object of a JSON file.
void edit_json(const std::string& path, const std::function<void(json::object&)>& edit) {
  json::value value = json::parse(read_file(path));
  edit(value.as_object());
  write_file(path, json::serialize(value));
}

BOOST_AUTO_TEST_SUITE(checkpoint)

BOOST_AUTO_TEST_CASE(any_layout_writes_the_same_bytes_and_goes_on_alike) {  // CASE 32
  const SharedFolder scratch;
  Trained first(dist::World(1));
  first.step(1);
  first.step(2);
  const std::string from = scratch / "first";
  TrainerState state;
  state.step = 2;
  state.sequences = 16;
  state.mean_context = 1.0 / 3;
  first.save(from, state);

  const SafetensorsFolder files(from, "model"), moments(from, "optimizer");
  for (const char* prefix : {"", "exp_avg.", "exp_avg_sq."}) {
    std::set<std::vector<double>> distinct;
    for (int expert = 0; expert < 4; ++expert) {
      const std::string name = prefix + std::string("model.layers.2.mlp.experts.") +
                               std::to_string(expert) + ".down_proj.weight";
      distinct.insert(doubles((*prefix ? moments : files).read(name)));
    }
    BOOST_TEST(distinct.size() == 4u);
  }

  Trained serial(dist::World::single(), DType::f32, tiny_config(), 7);
  serial.load(from);
  const Tensor serial_logits = serial.logits();
  serial.step(3);
  const NamedTensors after = values_of(*serial.model);
  for (const int expert_parallel : expert_parallel_sizes()) {
    BOOST_TEST_CONTEXT("expert_parallel " << expert_parallel) {
      Trained other(dist::World(expert_parallel), DType::f32, tiny_config(), 7);
      const TrainerState read = other.load(from);
      BOOST_TEST(read.mean_context == 1.0 / 3);
      // Experts see rows of more ranks here: their products may round otherwise, no more.
      const Tensor logits = other.logits();
      check_close(logits, serial_logits, 1e-5, 1e-6);
      const std::string again = scratch / ("again" + std::to_string(expert_parallel));
      other.save(again, read);
      for (const std::string& file : kFiles)
        BOOST_TEST(read_file(again + "/" + file) == read_file(from + "/" + file), file);
      Trained back(other.world, DType::f32, tiny_config(), 8);
      back.load(again);
      check_same_state(back, other);
      check_same_bits(back.logits(), logits);
      other.step(3);
      check_named_close(values_of(*other.model), after, 1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(masters_and_moments_of_a_bf16_model_keep_every_bit) {  // CASE 76
  const SharedFolder scratch;
  for (const int expert_parallel : expert_parallel_sizes()) {
    const dist::World world(expert_parallel);
    Trained straight(world, DType::bf16);
    for (uint64_t s = 1; s <= 3; ++s) straight.step(s);
    const std::string path = scratch / std::to_string(expert_parallel);
    straight.save(path);
    Trained resumed(world, DType::bf16, tiny_config(), 5);
    resumed.load(path);
    check_same_state(resumed, straight);
    for (uint64_t s = 4; s <= 5; ++s) {
      straight.step(s);
      resumed.step(s);
    }
    check_same_state(resumed, straight);
    // The masters hold more than the weights that the model computes with.
    const NamedTensors masters = straight.masters();
    const Tensor& head = masters.at("lm_head.weight");
    BOOST_TEST(doubles(head) != doubles(head.to(DType::bf16)));
  }
}

BOOST_AUTO_TEST_CASE(the_third_update_after_a_resume_has_the_right_size) {  // CASE 68
  const SharedFolder scratch;
  const AdamWConfig adamw{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-30, .weight_decay = 0};
  RunConfig config;
  config.optim.eps = 1e-30;
  for (const int expert_parallel : expert_parallel_sizes()) {
    const dist::World world(expert_parallel);
    const auto update = [&](Trained& t, double gradient) {
      t.optimizer.zero_grad();
      for (const Parameter* p : t.model->parameters().all()) {
        const int sharers = p->expert ? world.expert_data().size() : world.world().size();
        p->value.grad().fill_(gradient / sharers);
      }
      t.optimizer.reduce_gradients();
      t.optimizer.step(0.1, 1);
    };
    const std::string path = scratch / std::to_string(expert_parallel);
    Trained before(world, DType::f32, tiny_config(), 1, adamw);
    update(before, 1);
    update(before, 1);
    RunConfig saved;
    saved.model = tiny_config();
    saved.optim.eps = 1e-30;
    TrainerState state;
    state.step = state.optimizer_steps = 2;
    save_checkpoint(path, *before.model, before.optimizer, world, state, saved, {});
    Trained resumed(world, DType::f32, tiny_config(), 2, adamw);
    resumed.load(path, config);
    const NamedTensors weights = resumed.masters();
    update(resumed, -1);
    for (const auto& [name, after] : resumed.masters()) {
      const std::vector<double> x = doubles(weights.at(name)), y = doubles(after);
      for (size_t i = 0; i < x.size(); ++i) BOOST_REQUIRE_SMALL(x[i] - y[i] - 0.02620, 2e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE(selection_biases_are_saved_with_their_visits) {
  const SharedFolder scratch;
  const BalanceConfig bias{.balance = Balance::bias, .bias_update_rate = 0.01};
  Trained first(dist::World(1));
  first.model->enable_expert_bias();
  first.step(1, bias);
  first.step(2, bias);
  const std::string from = scratch / "first";
  first.save(from);
  const SafetensorsFolder files(from, "model");
  const std::string name = ".mlp.gate.expert_bias";
  BOOST_TEST(to_string(files.info("model.layers.0" + name).shape) == to_string({1, 4}));
  BOOST_TEST(to_string(files.info("model.layers.1" + name).shape) == to_string({2, 4}));
  BOOST_TEST(largest(files.read("model.layers.1" + name)) > 0);
  for (const int expert_parallel : expert_parallel_sizes()) {
    Trained other(dist::World(expert_parallel), DType::f32, tiny_config(), 7);
    other.load(from);
    for (int64_t s = 0; s < other.model->plan().executed_depth(); ++s)
      check_same_bits(other.model->expert_bias(s), first.model->expert_bias(s));
    const std::string again = scratch / ("again" + std::to_string(expert_parallel));
    other.save(again);
    BOOST_TEST(read_file(again + "/model.safetensors") == read_file(from + "/model.safetensors"));
  }
  Trained plain(dist::World(1));
  plain.save(scratch / "plain");
  const SafetensorsFolder without(scratch / "plain", "model");
  for (const std::string& tensor : without.names())
    BOOST_TEST(tensor.find("expert_bias") == std::string::npos, tensor);
}

BOOST_AUTO_TEST_CASE(a_biased_model_does_not_call_itself_qwen3_moe,
                     *boost::unit_test::precondition(alone)) {
  const ScratchFolder scratch;
  ModelConfig config = tiny_config(1);
  config.loop = {};
  for (const bool biased : {false, true}) {
    Trained t(dist::World::single(), DType::f32, config);
    if (biased) t.model->enable_expert_bias();
    const std::string path = (scratch / (biased ? "biased" : "plain")).string();
    t.save(path);
    const json::value written = json::parse(read_file(path + "/config.json"));
    BOOST_TEST(written.at("model_type").as_string() == (biased ? "smelt" : "qwen3_moe"));
    BOOST_TEST(read_model_json(path).config.loop.layers == 0);
  }
}

BOOST_AUTO_TEST_CASE(other_betas_or_eps_than_those_of_the_moments_are_refused,  // CASE 70
                     *boost::unit_test::precondition(alone)) {
  const ScratchFolder scratch;
  const std::string path = (scratch / "a").string();
  Trained(dist::World::single()).save(path);
  const auto refused = [&](const std::string& text, auto&& change) {
    RunConfig config;
    change(config.optim);
    Trained other(dist::World::single());
    BOOST_CHECK_EXCEPTION(other.load(path, config), ConfigError, says(text));
  };
  refused("optim.beta1 = 0.8 differs from 0.9", [](OptimConfig& o) { o.beta1 = 0.8; });
  refused("optim.beta2 = 0.999 differs from 0.95", [](OptimConfig& o) { o.beta2 = 0.999; });
  refused("optim.eps = 1e-06 differs from 1e-08", [](OptimConfig& o) { o.eps = 1e-6; });
}

BOOST_AUTO_TEST_CASE(tensors_that_do_not_fit_are_named, *boost::unit_test::precondition(alone)) {
  using Tensors = std::map<std::string, Tensor>;
  const std::string expert = "model.layers.1.mlp.experts.2.up_proj.weight";
  const struct {
    const char* prefix;
    std::function<void(Tensors&)> edit;
    std::string text;
  } kCases[] = {
      {"model", [&](Tensors& t) { t.erase(expert); }, "no tensor \"" + expert + "\""},
      {"model",
       [&](Tensors& t) {
         t["model.layers.9.mlp.gate.weight"] = Tensor::zeros({4, 16});
       },
       "tensor 'model.layers.9.mlp.gate.weight' has no place"},
      {"model",
       [&](Tensors& t) { t["model.layers.1.mlp.experts.4.up_proj.weight"] = t.at(expert); },
       "tensor 'model.layers.1.mlp.experts.4.up_proj.weight' has no place"},
      {"model", [&](Tensors& t) { t[expert] = t.at(expert).transpose(0, 1).contiguous(); },
       expert + "\" gives shape [16, 12]; must be [12, 16]"},
      {"model",
       [&](Tensors& t) {
         t[expert] = Tensor::zeros({12, 16}, {DType::i32, {}});
       },
       expert + "\" is I32, which does not convert to f32"},
      {"optimizer", [&](Tensors& t) { t.erase("exp_avg." + expert); },
       "no tensor \"exp_avg." + expert + "\""},
      {"optimizer",
       [&](Tensors& t) {
         t["exp_avg_sq." + expert] = Tensor::zeros({12, 17});
       },
       "exp_avg_sq." + expert + "\" gives shape [12, 17]; must be [12, 16]"},
  };
  const ScratchFolder scratch;
  const std::string path = (scratch / "a").string();
  Trained(dist::World::single()).save(path);
  const std::string model = read_file(path + "/model.safetensors");
  const std::string optimizer = read_file(path + "/optimizer.safetensors");
  for (const auto& c : kCases) {
    rewrite(path, c.prefix, c.edit);
    Trained other(dist::World::single());
    BOOST_TEST_CONTEXT(c.text) BOOST_CHECK_EXCEPTION(other.load(path), IoError, says(c.text));
    write_file(path + "/model.safetensors", model);
    write_file(path + "/optimizer.safetensors", optimizer);
  }
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "trainer_state.json"}) {
    fs::rename(path + "/" + name, path + "/away");
    Trained other(dist::World::single());
    BOOST_CHECK_EXCEPTION(other.load(path), IoError, says(name));
    fs::rename(path + "/away", path + "/" + name);
  }
}

BOOST_AUTO_TEST_CASE(a_damaged_trainer_state_is_named, *boost::unit_test::precondition(alone)) {
  const ScratchFolder scratch;
  const std::string path = (scratch / "a").string(), file = path + "/trainer_state.json";
  Trained(dist::World::single()).save(path);
  const std::string good = read_file(file);
  const auto refused = [&](const std::string& text) {
    Trained other(dist::World::single());
    BOOST_CHECK_EXCEPTION(other.load(path), IoError, says(text));
    write_file(file, good);
  };
  for (const char* key : {"step", "optimizer_steps", "sequences", "tokens", "skipped_steps",
                          "mean_context", "data_fingerprint", "adamw"}) {
    edit_json(file, [&](json::object& o) { o.erase(key); });
    refused("trainer_state.json: key '" + std::string(key) + "' is missing");
  }
  edit_json(file, [](json::object& o) { o["step"] = "seven"; });
  refused("step = \"seven\" has the wrong type");
  write_file(file, good.substr(0, good.size() / 2));
  refused("not a JSON object");
}

BOOST_AUTO_TEST_CASE(a_value_that_is_not_finite_is_not_saved,
                     *boost::unit_test::precondition(alone)) {
  const ScratchFolder scratch;
  for (const double value : {kNaN, kInfinity}) {
    for (const bool in_moment : {false, true}) {
      Trained t(dist::World::single());
      t.step(1);
      const Parameter& head = *t.model->parameters().all().back();
      if (in_moment) {
        t.optimizer.scatter_moments(
            ShardedOptimizer::Moment::second,
            [&](const Parameter&, const Tensor& whole) { whole.fill_(value); });
      } else {
        t.optimizer.master(head).view({-1}).slice(0, 3, 4).fill_(value);
      }
      BOOST_CHECK_EXCEPTION(t.save((scratch / "a").string()), RunError,
                            says("holds a value that is not finite; nothing was saved"));
      BOOST_TEST(fs::is_empty(scratch.path()));
    }
  }
}

BOOST_AUTO_TEST_CASE(config_json_gives_back_every_size, *boost::unit_test::precondition(alone)) {
  const ScratchFolder scratch;
  ModelConfig baseline;
  baseline.hidden_size = 48;
  baseline.num_layers = 5;
  baseline.num_heads = 6;
  baseline.num_kv_heads = 3;
  baseline.head_dim = 10;
  baseline.num_experts = 7;
  baseline.top_k = 3;
  baseline.expert_hidden_size = 20;
  baseline.vocab_size = 300;
  baseline.max_seq_len = 77;
  baseline.rope_theta = 123456.75;
  baseline.norm_eps = 1.0 / 3e5;
  baseline.norm_topk = false;
  baseline.tie_embeddings = true;
  baseline.init_std = 0.0123;
  ModelConfig smelt = baseline;
  smelt.qk_norm = QkNorm::none;
  smelt.shared_expert_hidden_size = 9;
  smelt.loop = {.start = 1,
                .layers = 3,
                .visits = 4,
                .scale = 0.3,
                .order = LoopOrder::layer,
                .kv = LoopKv::first};
  ModelConfig scaled_once = baseline;  // runs once, yet is no plain model
  scaled_once.loop = {.start = 1, .layers = 3, .visits = 1, .scale = 0.5};
  ModelConfig centred = baseline;
  centred.loop = {.start = -1, .layers = 2, .visits = 2};
  ModelConfig olmoe = baseline;
  olmoe.head_dim = 8;
  olmoe.qk_norm = QkNorm::projection;
  olmoe.clip_qkv = 7;
  ModelConfig mixtral = baseline;
  mixtral.qk_norm = QkNorm::none;
  mixtral.norm_topk = true;
  ModelConfig clipped = olmoe;  // its heads are not those of an OLMoE
  clipped.head_dim = 10;
  for (const ModelConfig& before :
       {baseline, smelt, scaled_once, centred, olmoe, mixtral, clipped}) {
    write_file(scratch / "config.json", write_model_json(before, 256));
    const ModelJson read = read_model_json(scratch.path());
    BOOST_TEST(read.eod_id == 256);
    RunConfig a, b;
    a.model = before;
    b.model = read.config;
    for (const ConfigDifference& d : config_differences(a, b))
      BOOST_TEST(false, d.key << ": " << d.before << " came back as " << d.after);
  }
  BOOST_CHECK(family_of(baseline) == Family::qwen3_moe);
  BOOST_CHECK(family_of(olmoe) == Family::olmoe);
  BOOST_CHECK(family_of(mixtral) == Family::mixtral);
  for (const ModelConfig& other : {smelt, scaled_once, centred, clipped})
    BOOST_CHECK(family_of(other) == Family::smelt);
}

BOOST_AUTO_TEST_CASE(config_json_that_says_too_little_is_refused,  // CASE 38
                     *boost::unit_test::precondition(alone)) {
  const ScratchFolder scratch;
  const std::string path = (scratch / "config.json").string();
  const std::string good = write_model_json(tiny_config(), -1);
  const auto refused = [&](const std::string& text, const std::function<void(json::object&)>& f) {
    write_file(path, good);
    edit_json(path, f);
    BOOST_CHECK_EXCEPTION(read_model_json(scratch.path()), IoError, says(text));
  };
  for (const char* key : {"start", "layers", "visits", "scale", "order", "kv"})
    refused("loop: key '" + std::string(key) + "' is missing",
            [&](json::object& o) { o.at("loop").as_object().erase(key); });
  refused("key 'loop' is missing", [](json::object& o) { o.erase("loop"); });
  refused("loop must be an object", [](json::object& o) { o["loop"] = 2; });
  refused("loop.order = zigzag must be span or layer",
          [](json::object& o) { o.at("loop").as_object()["order"] = "zigzag"; });
  refused("visits = 2.5E0 must be an integer",
          [](json::object& o) { o.at("loop").as_object()["visits"] = 2.5; });
  refused("model_type = llama must be qwen3_moe or olmoe or mixtral or smelt",
          [](json::object& o) { o["model_type"] = "llama"; });
  refused("hidden_size = 1099511627776 must be a whole number from 1 to 1048576",
          [](json::object& o) { o["hidden_size"] = int64_t{1} << 40; });
  refused("attention_bias = true is not supported",
          [](json::object& o) { o["attention_bias"] = true; });
  refused("hidden_act = gelu must be silu", [](json::object& o) { o["hidden_act"] = "gelu"; });
  refused("sliding_window must be null", [](json::object& o) { o["use_sliding_window"] = true; });
  refused("rope_scaling.rope_type = yarn must be default", [](json::object& o) {
    o["rope_scaling"] = json::object{{"rope_type", "yarn"}, {"factor", 4.0}};
  });
  refused("num_experts = 4 and num_local_experts = 5 differ",
          [](json::object& o) { o["num_local_experts"] = 5; });
  refused("key 'hidden_size' is missing", [](json::object& o) { o.erase("hidden_size"); });
  refused("mlp_only_layers = [1] must be []",
          [](json::object& o) { o["mlp_only_layers"] = json::array{1}; });
  write_file(path, good.substr(0, 40));
  BOOST_CHECK_EXCEPTION(read_model_json(scratch.path()), IoError, says("not JSON"));
}

BOOST_AUTO_TEST_CASE(a_run_folder_stands_for_its_latest_whole_checkpoint,  // CASE 86
                     *boost::unit_test::precondition(alone)) {
  const ScratchFolder scratch;
  const std::string run = scratch.path();
  BOOST_CHECK_EXCEPTION(resolve_checkpoint(run), IoError, says("holds neither config.json nor"));
  BOOST_CHECK_EXCEPTION(resolve_checkpoint(run + "/none"), IoError, says("is not a folder"));
  Trained t(dist::World::single());
  for (const char* step : {"9", "10", "100"}) t.save(run + "/checkpoints/step-" + step);
  BOOST_TEST(resolve_checkpoint(run) == run + "/checkpoints/step-100");
  BOOST_TEST(resolve_checkpoint(run + "/checkpoints/step-9") == run + "/checkpoints/step-9");
  fs::remove(run + "/checkpoints/step-100/optimizer.safetensors");
  BOOST_TEST(resolve_checkpoint(run) == run + "/checkpoints/step-10");
  fs::resize_file(run + "/checkpoints/step-10/model.safetensors", 100);
  BOOST_TEST(resolve_checkpoint(run) == run + "/checkpoints/step-9");
  fs::remove(run + "/checkpoints/step-9/complete");
  BOOST_CHECK_EXCEPTION(resolve_checkpoint(run), IoError, says("has no whole checkpoint"));
}

BOOST_AUTO_TEST_CASE(numbers_in_json_come_back_with_every_bit,
                     *boost::unit_test::precondition(alone)) {
  const Random random(5, "test/json");
  for (uint64_t i = 0; i < 20000; ++i) {
    const double x = random.normal(i) * std::pow(10, double(i % 40) - 20);
    json::error_code error;
    const json::value back = parse_json(json::serialize(json::array{x, -x, i}), error);
    BOOST_REQUIRE(!error);
    BOOST_REQUIRE_EQUAL(back.at(0).as_double(), x);
    BOOST_REQUIRE_EQUAL(back.at(1).as_double(), -x);
    BOOST_REQUIRE_EQUAL(back.at(2).as_int64(), int64_t(i));
  }
  const std::string text = R"({"a":[1,-2,true,null,"\u00e9\n"],"b":{"c":18446744073709551615}})";
  json::error_code error;
  BOOST_TEST(parse_json(text, error) == json::parse(text));
  for (const char* bad : {"", "{", "{\"a\":1}x", "[1,]", "1 2", "nul", "[1e]"}) {
    parse_json(bad, error);
    BOOST_TEST(bool(error), bad);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
