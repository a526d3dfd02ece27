// Folders that transformers wrote, against what it computed with them (tests/golden/hf, made by
// tests/interop/hf_golden.py). The weights are large and the gains differ from 1, so a norm, a
// clipping, a router's rule or a rotary base that is left out or misplaced shows. On two ranks each
// holds half of the experts.
#include <cmath>

#include "tests/apps/hf_outputs.h"
#include "tests/apps/scratch_folder.h"
#include "tests/moe/ranks.h"

namespace smelt::testing {
namespace {

const std::string kGolden = std::string(SMELT_SOURCE_DIR) + "/tests/golden/hf/";

/// Largest difference as a part of the largest value.
double relative_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = doubles(a), y = doubles(b);
  BOOST_REQUIRE_EQUAL(x.size(), y.size());
  double difference = 0;
  for (size_t i = 0; i < x.size(); ++i) difference = std::max(difference, std::abs(x[i] - y[i]));
  return difference / largest(b);
}

void check_outputs(const std::string& name, const std::string& folder) {
  const SafetensorsFile golden(kGolden + name + "/golden.safetensors");
  const Tensor ids = golden.read("ids");
  const dist::World world(number_of_ranks());
  const HfOutputs out =
      hf_outputs(folder, ids, ids.slice(0, 0, 1).slice(1, 0, 8).contiguous(), 64, world);
  const double logits = relative_difference(out.logits, golden.read("logits"));
  const double loss = std::abs(out.loss / golden.read("loss").item() - 1);
  const double aux = std::abs(out.aux / golden.read("aux").item() - 1);
  BOOST_TEST_MESSAGE(name << ": logits " << logits << ", loss " << loss << ", aux " << aux);
  BOOST_TEST(logits <= 1e-4);
  BOOST_TEST(loss <= 1e-5);
  BOOST_TEST(aux <= 1e-5);
  BOOST_TEST(out.greedy == golden.read("greedy").to_vector<int64_t>(),
             boost::test_tools::per_element());
}

void check(const std::string& name, Family family) {
  const ModelFolder folder(kGolden + name);
  BOOST_CHECK(folder.json().family == family);
  check_outputs(name, kGolden + name);
}

BOOST_AUTO_TEST_SUITE(hf_golden)

BOOST_AUTO_TEST_CASE(qwen3_moe_in_f32) {
  check("qwen3_moe", Family::qwen3_moe);
  BOOST_TEST(read_model_json(kGolden + "qwen3_moe").eos_ids == (std::vector<int32_t>{5, 6}));
}

BOOST_AUTO_TEST_CASE(qwen3_moe_in_bf16_with_fused_experts_and_a_tied_head) {
  check("qwen3_moe-fused-tied", Family::qwen3_moe);
}

BOOST_AUTO_TEST_CASE(olmoe_in_bf16_with_clipping) {
  check("olmoe", Family::olmoe);
  BOOST_TEST(read_model_json(kGolden + "olmoe").config.clip_qkv == 1.5);
}

BOOST_AUTO_TEST_CASE(mixtral_in_f16_in_four_files) {
  check("mixtral-sharded", Family::mixtral);
  BOOST_TEST(SafetensorsFolder(kGolden + "mixtral-sharded").files().size() == 4u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace smelt::testing
