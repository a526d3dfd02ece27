// smelt-bench generation: tokens per second with the KV cache, against the rate at which memory
// gives the weights that a token needs.
#include <cstdio>

#include <boost/json.hpp>

#include "apps/bench/measure.h"
#include "apps/common/metrics.h"
#include "apps/common/progress.h"
#include "moe/budget.h"
#include "moe/generate.h"
#include "tensor/rng.h"

namespace smelt {
namespace {

namespace json = boost::json;

/// Seconds of one generated token in each of `batch` sequences, prompts left out.
double seconds_per_token(MoeTransformer& model, int64_t batch, int64_t tokens) {
  const Random random(2, "bench/prompts");
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t b = 0; b < batch; ++b) {
    prompts.emplace_back();
    for (int64_t i = 0; i < 8; ++i)
      prompts.back().push_back(
          int32_t(random.below(uint64_t(8 * b + i), uint64_t(model.config().vocab_size))));
  }
  const auto run = [&](int64_t count) {
    return seconds_of([&] { generate(model, prompts, {.max_new_tokens = count, .sampling = {}}); });
  };
  run(2);
  // The prompt and the first token cost the same in both.
  return (run(tokens + 1) - run(1)) / double(tokens);
}

}  // namespace

OptionTable generation_options() {
  OptionTable options("bench generation",
                      "Generates with models A and A-smelt at batch 1 and 16. At batch 1 a token "
                      "costs at least the time to read the weights it uses.");
  options.integer("tokens", 64, 1, 1024, "tokens", "generated tokens of each sequence");
  options.text("out", "", "FILE", "also write the JSON document to this file");
  return options;
}

int run_generation(const Arguments& arguments) {
  std::FILE* out = table_stream(arguments);
  const double rate = read_rate();
  std::fprintf(out, "memory gives %s/s\n\n%-10s %-6s %6s %12s %16s %18s\n",
               human_bytes(rate).c_str(), "case", "dtype", "batch", "tokens/s", "weights read/s",
               "of memory's rate");
  json::array results;
  for (const BenchCase& c : bench_cases()) {
    if (!c.name.starts_with("A")) continue;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const dist::World world(1);
      MoeTransformer model(c.model, dtype, world);
      model.parameters().initialize(1);
      const Budget budget = budget_of(c.model, 1);
      // Each executed step reads its layer's active weights; the head is read once.
      const double layers = double(budget.params_active - c.model.hidden_size) *
                            double(budget.executed_depth) / double(c.model.num_layers);
      const double bytes =
          (layers + double(c.model.hidden_size * c.model.vocab_size)) * double(size_of(dtype));
      for (const int64_t batch : {1, 16}) {
        const double seconds = seconds_per_token(model, batch, arguments.integer("tokens"));
        json::object r{{"name", c.name},
                       {"dtype", name_of(dtype)},
                       {"batch", batch},
                       {"tokens_per_second", double(batch) / seconds}};
        if (batch == 1) {
          r["active_weight_bytes_per_second"] = bytes / seconds;
          r["fraction_of_read_rate"] = bytes / seconds / rate;
        }
        std::fprintf(out, "%-10s %-6s %6lld %12s", c.name.c_str(), to_text(dtype),
                     static_cast<long long>(batch), human_count(double(batch) / seconds).c_str());
        if (batch == 1)
          std::fprintf(out, " %16s %17.1f%%", human_bytes(bytes / seconds).c_str(),
                       100 * bytes / seconds / rate);
        std::fprintf(out, "\n");
        std::fflush(out);
        results.push_back(r);
      }
    }
  }
  finish(arguments, {{"read_bytes_per_second", rate}, {"generation", results}});
  return 0;
}

}  // namespace smelt
