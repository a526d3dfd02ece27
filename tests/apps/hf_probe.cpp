// hf_probe FOLDER IN OUT: what a model's folder computes, for tests/interop/hf_compare.py. IN is a
// safetensors file with ids [B, S] and prompt [1, P] (I64), OUT gets logits, loss, aux and the 64
// greedy tokens behind the prompt.
#include <cstdio>

#include "dist/environment.h"
#include "tests/apps/hf_outputs.h"

int main(int argc, char** argv) {
  using namespace smelt;
  const dist::Environment environment(argc, argv);
  if (argc != 4) {
    std::fprintf(stderr, "usage: hf_probe FOLDER IN OUT\n");
    return 2;
  }
  try {
    const SafetensorsFile in(argv[2]);
    const testing::HfOutputs out =
        testing::hf_outputs(argv[1], in.read("ids"), in.read("prompt"), 64, dist::World(1));
    const std::map<std::string, Tensor> tensors = {{"logits", out.logits},
                                                   {"loss", Tensor::from<double>({out.loss})},
                                                   {"aux", Tensor::from<double>({out.aux})},
                                                   {"greedy", Tensor::from(out.greedy)}};
    std::vector<TensorSpec> specs;
    for (const auto& [name, tensor] : tensors)
      specs.push_back({name, tensor.dtype(), tensor.shape()});
    SafetensorsWriter writer(argv[3], specs);
    for (const TensorSpec& spec : writer.order()) writer.write(spec.name, tensors.at(spec.name));
    writer.publish();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hf_probe: %s\n", error.what());
    return 1;
  }
  return 0;
}
