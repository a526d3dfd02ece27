// Names of tensors: ours against those that a model really has, and theirs.
#include "apps/common/families.h"

#include <set>

#include "apps/common/model_folder.h"
#include "tests/apps/scratch_folder.h"
#include "tests/moe/models.h"

namespace smelt::testing {
namespace {

BOOST_AUTO_TEST_SUITE(families)

BOOST_AUTO_TEST_CASE(every_tensor_of_a_model_is_listed_with_its_shape) {
  ModelConfig shared = tiny_config(2);
  shared.shared_expert_hidden_size = 10;
  shared.tie_embeddings = true;
  ModelConfig projection = tiny_config(1);
  projection.qk_norm = QkNorm::projection;
  ModelConfig none = tiny_config(1);
  none.qk_norm = QkNorm::none;
  for (const ModelConfig& config : {tiny_config(3), shared, projection, none}) {
    const auto model = make_model(config, DType::f32);
    std::set<std::string> expected, listed;
    for (const Parameter* p : model->parameters().all())
      for (const TensorPiece& piece : p->pieces)
        expected.insert(piece.name + to_string(piece.shape));
    for_each_tensor(config, false, [&](const std::string& name, const Shape& shape) {
      listed.insert(name + to_string(shape));
    });
    BOOST_TEST(listed == expected, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(names_in_files) {
  const std::string layer = "model.layers.12.";
  BOOST_TEST(family_name(Family::mixtral, layer + "mlp.experts.7.gate_proj.weight") ==
             layer + "block_sparse_moe.experts.7.w1.weight");
  BOOST_TEST(family_name(Family::mixtral, layer + "mlp.experts.7.down_proj.weight") ==
             layer + "block_sparse_moe.experts.7.w2.weight");
  BOOST_TEST(family_name(Family::mixtral, layer + "mlp.experts.7.up_proj.weight") ==
             layer + "block_sparse_moe.experts.7.w3.weight");
  BOOST_TEST(family_name(Family::mixtral, layer + "mlp.gate.weight") ==
             layer + "block_sparse_moe.gate.weight");
  BOOST_TEST(family_name(Family::mixtral, layer + "self_attn.q_proj.weight") ==
             layer + "self_attn.q_proj.weight");
  for (const Family family : {Family::smelt, Family::qwen3_moe, Family::olmoe})
    for (const char* name : {"mlp.gate.weight", "mlp.experts.7.up_proj.weight"})
      BOOST_TEST(family_name(family, layer + name) == layer + name);
  const FusedPart up = fused_part(layer + "mlp.experts.2.up_proj.weight", {3, 5}, 4);
  BOOST_TEST(up.name == layer + "mlp.experts.gate_up_proj");
  BOOST_TEST(up.shape == (Shape{4, 6, 5}));
  BOOST_TEST(up.begin == (2 * 6 + 3) * 5);
  const FusedPart down = fused_part(layer + "mlp.experts.2.down_proj.weight", {5, 3}, 4);
  BOOST_TEST(down.name == layer + "mlp.experts.down_proj");
  BOOST_TEST(down.begin == 2 * 15);
  BOOST_TEST(fused_part(layer + "mlp.gate.weight", {4, 5}, 4).name.empty());
  BOOST_TEST(fused_part("model.norm.weight", {5}, 4).name.empty());
}

BOOST_AUTO_TEST_CASE(giant_sizes_in_config_json_allocate_nothing) {
  const ScratchFolder scratch;
  ModelConfig giant;
  giant.hidden_size = giant.num_experts = giant.expert_hidden_size = 1 << 20;
  giant.num_layers = 65536;
  giant.head_dim = 1 << 20;
  write_file(scratch / "config.json", write_model_json(giant, -1));
  SafetensorsWriter writer(scratch / "model.safetensors", {{"model.norm.weight", DType::f32, {4}}});
  writer.write("model.norm.weight", Tensor::zeros({4}));
  writer.publish();
  const ModelFolder folder(scratch.path());
  BOOST_CHECK_EXCEPTION(folder.check(folder.json().config), IoError,
                        says("no tensor \"model.embed_tokens.weight\""));
}

BOOST_AUTO_TEST_CASE(a_tied_head_may_stand_under_either_name_but_not_differ) {
  ModelConfig config = tiny_config(1);
  config.tie_embeddings = true;
  const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
  const auto written = [&](const ScratchFolder& scratch, bool with_embedding, double head_value) {
    write_file(scratch / "config.json", write_model_json(config, -1));
    std::vector<TensorSpec> specs;
    for_each_tensor(config, false, [&](const std::string& name, const Shape& shape) {
      if (name != embedding || with_embedding) specs.push_back({name, DType::f32, shape});
    });
    specs.push_back({head, DType::f32, {config.vocab_size, config.hidden_size}});
    SafetensorsWriter writer(scratch / "model.safetensors", specs);
    for (const TensorSpec& spec : writer.order())
      writer.write(spec.name, Tensor::full(spec.shape, spec.name == head ? head_value : 2));
    writer.publish();
    return ModelFolder(scratch.path());
  };
  const Shape shape = {config.vocab_size, config.hidden_size};
  const ScratchFolder a, b, c;
  const ModelFolder head_alone = written(a, false, 2);
  head_alone.check(config);
  BOOST_TEST(head_alone.find(embedding, shape).name == head);
  const ModelFolder both = written(b, true, 2);
  both.check(config);
  BOOST_TEST(both.find(embedding, shape).name == embedding);
  BOOST_CHECK_EXCEPTION(written(c, true, 3).check(config), IoError,
                        says("tie_word_embeddings = true, but lm_head.weight differs"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
