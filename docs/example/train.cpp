// Trains a small looped mixture-of-experts model on the bytes of a text and lets it write.
//   train_example FILE [STEPS]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "dist/environment.h"
#include "moe/generate.h"
#include "moe/train_step.h"
#include "nn/schedule.h"
#include "tensor/rng.h"

using namespace smelt;

int main(int argc, char** argv) try {
  const dist::Environment environment(argc, argv);
  const dist::World world(1);  // one expert-parallel rank
  if (argc < 2) return std::fprintf(stderr, "usage: train_example FILE [STEPS]\n"), 2;

  std::ifstream in(argv[1], std::ios::binary);
  const ByteTokenizer tokenizer;
  const std::vector<int32_t> text =
      tokenizer.encode(std::string(std::istreambuf_iterator<char>(in), {}));
  const int64_t batch = 8, length = 128;
  if (int64_t(text.size()) <= length) return std::fprintf(stderr, "%s: too short\n", argv[1]), 2;

  ModelConfig config{.hidden_size = 64,
                     .num_layers = 4,
                     .head_dim = 16,
                     .num_experts = 8,
                     .top_k = 2,
                     .expert_hidden_size = 64,
                     .vocab_size = tokenizer.vocab_size()};
  config.loop.layers = 2;  // the middle two layers,
  config.loop.visits = 2;  // twice
  MoeTransformer model(config, DType::f32, world);
  model.parameters().initialize(/*seed=*/1);
  ShardedOptimizer optimizer(model.parameters(), world, AdamWConfig{.weight_decay = 0.1});

  const int64_t steps = argc > 2 ? std::atoll(argv[2]) : 300;
  const ScheduleConfig schedule{
      .lr = 3e-3, .warmup_steps = 20, .total_steps = steps, .decay_steps = steps / 5};
  const Random random(1, "example/places");
  for (int64_t step = 1; step <= steps; ++step) {
    std::vector<int32_t> tokens, targets;
    for (int64_t b = 0; b < batch; ++b) {
      const uint64_t place =
          uint64_t((step * world.world().size() + world.world().rank()) * batch + b);
      const auto at = text.begin() + int64_t(random.below(place, text.size() - size_t(length)));
      tokens.insert(tokens.end(), at, at + length);
      targets.insert(targets.end(), at + 1, at + length + 1);
    }
    const ModelInput input{Tensor::from(tokens), Tensor::from(targets),
                           SequenceLayout::from_document_starts(
                               batch, length, std::vector<int32_t>(tokens.size(), 0))};
    const StepMetrics metrics = train_step(model, optimizer, world, {input},
                                           {.lr = learning_rate(schedule, step), .balance = {}});
    if (step % 50 == 0 && world.world().rank() == 0)
      std::printf("step %lld: loss %.3f\n", static_cast<long long>(step), metrics.loss);
  }

  const auto written = generate(model, {tokenizer.encode("The ")},
                                {.max_new_tokens = 80, .sampling = {.temperature = 0.8}});
  if (world.world().rank() == 0) std::printf("The %s\n", tokenizer.decode(written[0]).c_str());
  return 0;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "train_example: %s\n", error.what()), 1;
}
