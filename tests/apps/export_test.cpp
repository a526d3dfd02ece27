// smelt-export: what it writes computes the same, in the type and files asked for, and what has no
// such form is refused with the reason.
#include "apps/export/export.h"

#include <boost/json.hpp>

#include "apps/common/atomic_folder.h"
#include "tensor/allocator.h"
#include "tests/apps/eval_runs.h"
#include "tests/apps/hf_outputs.h"
#include "tests/apps/program.h"

namespace smelt::testing {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// A checkpoint of the tiny model, changed before it is saved.
std::string make_checkpoint(const ScratchFolder& scratch, const std::string& name,
                            const std::function<void(ModelConfig&)>& change,
                            const std::function<void(MoeTransformer&)>& edit = {}) {
  RunConfig config = tiny_config(scratch, 2);
  config.model.init_std = 0.2;
  change(config.model);
  const dist::World world(1);
  MoeTransformer model(config.model, DType::f32, world);
  model.parameters().initialize(5);
  if (edit) edit(model);
  const ShardedOptimizer optimizer(model.parameters(), world, AdamWConfig{});
  save_checkpoint(
      scratch.path(name), model, optimizer, world, {}, config,
      {ByteTokenizer().json_text(), ByteTokenizer().config_text(), ByteTokenizer::kEod});
  return scratch.path(name);
}

Tensor value_of(MoeTransformer& model, const std::string& name) {
  for (const Parameter* p : model.parameters().all())
    if (p->name == name) return p->value.data();
  BOOST_FAIL("no parameter " << name);
  return {};
}

HfOutputs outputs(const std::string& folder) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 24; ++i) ids.push_back(i * 37 % 257);
  return hf_outputs(folder, Tensor::from(ids, {2, 12}), Tensor::from<int64_t>({7, 8}, {1, 2}), 16,
                    dist::World(1));
}

void check_same_outputs(const std::string& a, const std::string& b, double limit) {
  const HfOutputs x = outputs(a), y = outputs(b);
  check_close(x.logits, y.logits, 0, limit);
  BOOST_TEST(x.greedy == y.greedy, boost::test_tools::per_element());
}

ExportResult run(const std::string& source, const std::string& out, bool unroll = false,
                 FileType dtype = FileType::same, HeadForm head = HeadForm::as_it_is,
                 int64_t shard_bytes = 1 << 30) {
  return export_model({source, out, unroll, head, dtype, shard_bytes});
}

BOOST_AUTO_TEST_SUITE(export_folder)

BOOST_AUTO_TEST_CASE(an_unrolled_model_is_a_plain_folder_that_computes_the_same) {
  const ScratchFolder scratch;
  for (const LoopOrder order : {LoopOrder::span, LoopOrder::layer}) {
    const std::string name = order == LoopOrder::span ? "span" : "layer";
    const std::string from = make_checkpoint(scratch, name, [&](ModelConfig& c) {
      c.loop = {.start = 0, .layers = 2, .visits = 3, .order = order};
    });
    const std::string to = scratch.path(name + "-plain");
    const ExportResult result = run(from, to, true);
    BOOST_TEST(result.model_type == "qwen3_moe");
    BOOST_TEST(result.model.num_layers == 6);
    check_same_outputs(from, to, 1e-5);
    const json::value config = json::parse(read_file(to + "/config.json"));
    BOOST_TEST(config.at("architectures").at(0).as_string() == "Qwen3MoeForCausalLM");
    BOOST_TEST(config.at("num_hidden_layers").as_int64() == 6);
    BOOST_TEST(!config.as_object().contains("loop"));
    BOOST_TEST(is_complete(to));
    const json::value tokenizer = json::parse(read_file(to + "/tokenizer_config.json"));
    BOOST_TEST(tokenizer.at("tokenizer_class").as_string() == "PreTrainedTokenizerFast");
    BOOST_TEST(tokenizer.at("eos_token").as_string() == "<|endoftext|>");
    BOOST_TEST(
        json::parse(read_file(to + "/generation_config.json")).at("eos_token_id").as_int64() ==
        256);
    BOOST_TEST(read_file(to + "/tokenizer.json") == read_file(from + "/tokenizer.json"));
  }
}

BOOST_AUTO_TEST_CASE(without_unroll_the_loop_stays_and_layers_are_stored_once) {
  const ScratchFolder scratch;
  const std::string from = make_checkpoint(
      scratch, "a",
      [](ModelConfig& c) {
        c.shared_expert_hidden_size = 8;
        c.loop.kv = LoopKv::first;
      },
      [](MoeTransformer& m) {
        m.enable_expert_bias();
        m.expert_bias(1).fill_(0.25);
      });
  const ExportResult result = run(from, scratch.path("b"));
  BOOST_TEST(result.model_type == "smelt");
  BOOST_TEST(read_file(scratch.path("b/model.safetensors")) ==
             read_file(from + "/model.safetensors"));
  BOOST_TEST(read_file(scratch.path("b/config.json")) == read_file(from + "/config.json"));
}

BOOST_AUTO_TEST_CASE(types_and_files_are_those_asked_for) {
  const ScratchFolder scratch;
  const std::string from =
      make_checkpoint(scratch, "a", [](ModelConfig& c) { c.loop = LoopConfig{}; });
  const SafetensorsFolder source(from);
  const struct {
    FileType type;
    const char *in_file, *in_config;
    double rounding;
  } kTypes[] = {{FileType::f32, "F32", "float32", 0},
                {FileType::bf16, "BF16", "bfloat16", 0x1p-8},
                {FileType::f16, "F16", "float16", 0x1p-11}};
  for (const auto& t : kTypes) {
    const std::string to = scratch.path(t.in_file);
    run(from, to, false, t.type, HeadForm::as_it_is, 20000);
    const SafetensorsFolder files(to);
    BOOST_TEST(files.files().size() > 1u);
    for (const auto& file : files.files())
      BOOST_TEST(fs::file_size(file->path()) < 20000u + 8192u);  // header included
    for (const std::string& name : source.names()) {
      BOOST_TEST(files.info(name).dtype == t.in_file);
      check_close(files.read(name).to(DType::f32), source.read(name), t.rounding, 0x1p-25);
    }
    BOOST_TEST(json::parse(read_file(to + "/config.json")).at("dtype").as_string() == t.in_config);
    // Once narrow, "same" and a way back to f32 change nothing.
    run(to, to + "-again");
    run(to, to + "-wide", false, FileType::f32);
    const SafetensorsFolder again(to + "-again"), wide(to + "-wide");
    for (const std::string& name : source.names()) {
      BOOST_TEST(again.info(name).dtype == t.in_file);
      check_same_bits(again.read(name), files.read(name));
      check_same_bits(wide.read(name), files.read(name).to(DType::f32));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_head_that_repeats_the_embedding_is_stored_once_or_twice) {  // CASE 93
  const ScratchFolder scratch;
  const auto plain = [](ModelConfig& c) { c.loop = LoopConfig{}; };
  const std::string equal = make_checkpoint(scratch, "equal", plain, [](MoeTransformer& m) {
    value_of(m, "lm_head.weight").copy_(value_of(m, "model.embed_tokens.weight"));
  });
  const std::string once = scratch.path("once"), twice = scratch.path("twice");
  run(equal, once, false, FileType::same, HeadForm::tied);
  BOOST_TEST(!SafetensorsFolder(once).contains("lm_head.weight"));
  BOOST_TEST(read_model_json(once).config.tie_embeddings);
  check_same_outputs(equal, once, 0);
  run(once, twice, false, FileType::same, HeadForm::untied);
  BOOST_TEST(!read_model_json(twice).config.tie_embeddings);
  BOOST_TEST(read_file(twice + "/model.safetensors") == read_file(equal + "/model.safetensors"));
  // A tied model stays tied unless asked for.
  run(once, scratch.path("still"));
  BOOST_TEST(read_file(scratch.path("still/model.safetensors")) ==
             read_file(once + "/model.safetensors"));
  const std::string own = make_checkpoint(scratch, "own", plain);
  BOOST_CHECK_EXCEPTION(run(own, scratch.path("x"), false, FileType::same, HeadForm::tied),
                        ConfigError, says("does not repeat the embedding"));
  BOOST_CHECK_EXCEPTION(run(own, scratch.path("x"), false, FileType::same, HeadForm::untied),
                        ConfigError, says("is its own already"));
}

BOOST_AUTO_TEST_CASE(what_has_no_plain_form_is_refused_and_leaves_nothing) {
  const ScratchFolder scratch;
  const auto refused = [&](const std::string& text, const std::function<void(ModelConfig&)>& change,
                           FileType dtype = FileType::same, HeadForm head = HeadForm::as_it_is,
                           const std::function<void(MoeTransformer&)>& edit = {}) {
    const ScratchFolder inner;
    const std::string from = make_checkpoint(inner, "a", change, edit);
    BOOST_TEST_CONTEXT(text) {
      BOOST_CHECK_EXCEPTION(run(from, scratch.path("out"), true, dtype, head), ConfigError,
                            says(text));
      BOOST_TEST(fs::is_empty(scratch.path()));
    }
  };
  const auto nothing = [](ModelConfig&) {};
  refused("loop.kv = first has no unrolled form",
          [](ModelConfig& c) { c.loop.kv = LoopKv::first; });
  refused("for its shared experts", [](ModelConfig& c) { c.shared_expert_hidden_size = 8; });
  refused("for its selection biases (balance = bias)", nothing, FileType::same, HeadForm::as_it_is,
          [](MoeTransformer& m) { m.enable_expert_bias(); });
  refused("for norm_topk = false, which does not go with qk_norm = false", [](ModelConfig& c) {
    c.qk_norm = QkNorm::none;
    c.norm_topk = false;
  });
  refused(
      "--tied and --unroll exclude each other", [](ModelConfig& c) { c.tie_embeddings = true; },
      FileType::same, HeadForm::tied);
  refused(
      "times the residual scale 1e-09, lie below the range of f16: underflow",
      [](ModelConfig& c) { c.loop.scale = 1e-9; }, FileType::f16);
  refused("is beyond the range of f16", nothing, FileType::f16, HeadForm::as_it_is,
          [](MoeTransformer& m) { value_of(m, "model.norm.weight").fill_(1e6); });
  // The same scale in a type with room for it.
  const ScratchFolder inner;
  const std::string from = make_checkpoint(inner, "a", [](ModelConfig& c) { c.loop.scale = 1e-9; });
  run(from, inner.path("out"), true, FileType::bf16);
}

BOOST_AUTO_TEST_CASE(memory_is_that_of_one_tensor) {
  const ScratchFolder scratch;
  const std::string from = make_checkpoint(scratch, "a", [](ModelConfig& c) {
    c.hidden_size = 64;
    c.num_experts = 32;
    c.expert_hidden_size = 64;
  });
  double whole = 0, largest = 0;
  const SafetensorsFolder files(from);
  for (const std::string& name : files.names()) {
    const double bytes = double(files.info(name).end - files.info(name).begin);
    whole += bytes;
    largest = std::max(largest, bytes);
  }
  const auto before = double(allocator().stats().live_bytes);
  allocator().reset_peak();
  run(from, scratch.path("b"), true, FileType::f16);
  const double peak = double(allocator().stats().peak_live_bytes) - before;
  BOOST_TEST(peak <= 2 * largest);
  BOOST_TEST(whole > 10 * largest);  // else this could not fail
}

BOOST_AUTO_TEST_CASE(the_program_tells_what_it_wrote_and_what_is_wrong) {
  const ScratchFolder scratch;
  const std::string run_folder = make_run(scratch, "run", 2);
  const auto program = [&](const std::string& arguments) {
    return run_command(scratch, join({SMELT_EXPORT, " ", arguments}));
  };
  const Outcome help = program("--help");
  BOOST_TEST(help.code == 0);
  for (const char* option : {"--checkpoint", "--out", "--unroll", "--dtype", "--shard-size",
                             "--tied", "--untied", "--json"})
    BOOST_TEST(help.out.find(option) != std::string::npos, option << " is missing");
  const std::string common = "--checkpoint=" + run_folder + " --out=" + scratch.path("out");
  const Outcome done = program(common + " --unroll --dtype=bf16 --json");
  BOOST_REQUIRE_MESSAGE(done.code == 0, done.err);
  const json::value told = json::parse(done.out);
  BOOST_TEST(told.at("model_type").as_string() == "qwen3_moe");
  BOOST_TEST(told.at("num_layers").as_int64() == 3);
  const auto refused = [&](const std::string& arguments, const std::string& text) {
    const Outcome outcome = program(arguments);
    BOOST_TEST_CONTEXT(arguments << ": " << outcome.err) {
      BOOST_TEST(outcome.code == 2);
      BOOST_TEST(count_of(outcome.err, "\n") == 1u);
      BOOST_TEST(outcome.err.find(text) != std::string::npos);
    }
  };
  refused(common, "exists already");
  refused("--checkpoint=" + scratch.path("none") + " --out=" + scratch.path("x"),
          "is not a folder");
  refused(common + "2 --shard-size=0GB", "must be a size such as 5GB");
  refused(common + "2 --tied --untied", "exclude each other");
  refused(common + "2 --dtype=fp8", "--dtype=fp8");
}

BOOST_AUTO_TEST_CASE(sizes_as_text) {
  BOOST_TEST(parse_bytes("5GB") == 5'000'000'000);
  BOOST_TEST(parse_bytes("1.5MB") == 1'500'000);
  BOOST_TEST(parse_bytes("64MiB") == 64 << 20);
  BOOST_TEST(parse_bytes("123") == 123);
  for (const char* bad : {"", "GB", "5 GB", "-1GB", "5TB", "nan", "1e30GB", "0"})
    BOOST_TEST(parse_bytes(bad) == 0, bad);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
