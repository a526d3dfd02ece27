// smelt-bench: rate of a whole training step against the rate of a large matrix product in the same
// process, which is what the hardware gives.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <vector>

#include <boost/json.hpp>
#include <omp.h>

#include "apps/common/cli.h"
#include "apps/common/metrics.h"
#include "apps/common/output_file.h"
#include "apps/common/progress.h"
#include "moe/budget.h"
#include "moe/train_step.h"
#include "tensor/gemm.h"
#include "tensor/rng.h"

namespace smelt {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Smallest time of several runs: the machine at its best, undisturbed by others.
double best_of(int runs, const std::function<void()>& work) {
  double best = seconds_of(work);
  for (int i = 1; i < runs; ++i) best = std::min(best, seconds_of(work));
  return best;
}

/// FLOP/s of a 2048^3 product.
double matrix_rate(DType dtype) {
  const int64_t n = 2048;
  const Tensor a = Tensor::full({n, n}, 0.5, {dtype, {}}),
               b = Tensor::full({n, n}, 0.25, {dtype, {}});
  const Tensor c = Tensor::empty({n, n}, {dtype, {}});
  matmul_(c, a, b, 1, 0);
  return 2.0 * double(n) * double(n) * double(n) / best_of(5, [&] { matmul_(c, a, b, 1, 0); });
}

/// Bytes read and written per second by a large copy.
double copy_rate() {
  const Tensor from = Tensor::zeros({int64_t{64} << 20}), to = Tensor::zeros({int64_t{64} << 20});
  return 2.0 * double(from.bytes()) / best_of(5, [&] { to.copy_(from); });
}

struct Case {
  std::string name;
  ModelConfig model;
  int64_t batch, seq_len;
};

/// Reference sizes: A has 22M active parameters; A-smelt is a looped model of about the same budgets.
std::vector<Case> cases() {
  ModelConfig a;
  a.hidden_size = 512;
  a.num_layers = 8;
  a.num_heads = 8;
  a.num_kv_heads = 2;
  a.head_dim = 64;
  a.num_experts = 64;
  a.top_k = 8;
  a.expert_hidden_size = 176;
  a.vocab_size = 8192;
  ModelConfig looped = a;
  looped.hidden_size = 416;
  looped.num_heads = 8;
  looped.head_dim = 44;
  looped.num_experts = 96;
  looped.expert_hidden_size = 144;
  looped.loop.layers = 4;
  looped.loop.visits = 2;
  return {{"A", a, 8, 512}, {"A-smelt", looped, 8, 512}};
}

json::object run_case(const Case& c, DType dtype, int64_t steps, double rate) {
  const dist::World world(1);
  MoeTransformer model(c.model, dtype, world);
  model.parameters().initialize(1);
  ShardedOptimizer optimizer(model.parameters(), world, {});
  const Random random(1, "bench/tokens");
  const int64_t T = c.batch * c.seq_len;
  std::vector<int32_t> tokens, targets;
  for (int64_t t = 0; t < T; ++t) {
    tokens.push_back(int32_t(random.below(uint64_t(t), uint64_t(c.model.vocab_size))));
    targets.push_back(int32_t(random.below(uint64_t(T + t), uint64_t(c.model.vocab_size))));
  }
  const ModelInput input{
      Tensor::from(tokens), Tensor::from(targets),
      SequenceLayout::from_document_starts(c.batch, c.seq_len, std::vector<int32_t>(size_t(T), 0))};
  const auto step = [&] {
    train_step(model, optimizer, world, {input}, {.lr = 1e-4, .grad_clip = 1, .balance = {}});
  };
  for (int i = 0; i < 2; ++i) step();
  std::vector<double> times;
  for (int64_t i = 0; i < steps; ++i) times.push_back(seconds_of(step));
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const Budget budget = budget_of(c.model, double(c.seq_len + 1) / 2);
  const double flops = (budget.flops_per_token + budget.flops_head) * double(T) / median;
  return {{"name", c.name},
          {"dtype", name_of(dtype)},
          {"tokens_per_second", double(T) / median},
          {"model_flops_per_second", flops},
          {"fraction_of_matrix_rate", flops / rate},
          {"step_seconds", median},
          {"step_seconds_min", times.front()},
          {"params_total", budget.params_total},
          {"peak_rss_bytes", memory_use().peak_bytes}};
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

int bench(const Arguments& arguments) {
  const double rate_f32 = matrix_rate(DType::f32), rate_bf16 = matrix_rate(DType::bf16);
  json::object machine{{"cpu", processor_name()},          {"threads", omp_get_max_threads()},
                       {"matrix_rate_f32", rate_f32},      {"matrix_rate_bf16", rate_bf16},
                       {"native_bf16", has_native_bf16()}, {"copy_bytes_per_second", copy_rate()}};
  std::FILE* out = arguments.json() ? stderr : stdout;
  std::fprintf(out,
               "%s, %d threads: 2048^3 product %sFLOP/s in f32, %sFLOP/s in bf16%s, copy %s/s\n\n",
               processor_name().c_str(), omp_get_max_threads(), human_count(rate_f32).c_str(),
               human_count(rate_bf16).c_str(), has_native_bf16() ? "" : " (widened to f32)",
               human_bytes(machine["copy_bytes_per_second"].as_double()).c_str());
  std::fprintf(out, "%-10s %-6s %12s %14s %16s %12s %12s\n", "case", "dtype", "tokens/s",
               "model FLOP/s", "of matrix rate", "step", "peak RSS");
  json::array results;
  const std::vector<std::string> wanted = arguments.list("case"), dtypes = arguments.list("dtype");
  for (const Case& c : cases()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), c.name) == wanted.end())
      continue;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (!dtypes.empty() &&
          std::find(dtypes.begin(), dtypes.end(), to_text(dtype)) == dtypes.end())
        continue;
      const json::object r = run_case(c, dtype, arguments.integer("steps"),
                                      dtype == DType::f32 ? rate_f32 : rate_bf16);
      std::fprintf(out, "%-10s %-6s %12s %14s %15.1f%% %12s %12s\n", c.name.c_str(), to_text(dtype),
                   human_count(r.at("tokens_per_second").as_double()).c_str(),
                   human_count(r.at("model_flops_per_second").as_double()).c_str(),
                   100 * r.at("fraction_of_matrix_rate").as_double(),
                   human_duration(r.at("step_seconds").as_double()).c_str(),
                   human_bytes(double(r.at("peak_rss_bytes").as_int64())).c_str());
      results.push_back(r);
    }
  }
  const json::object document{{"machine", machine}, {"cases", results}};
  if (const std::string path = arguments.text("out"); !path.empty())
    write_file(path, json_line(document) + "\n");
  if (arguments.json()) std::cout << json_line(document) << "\n";
  return 0;
}

}  // namespace
}  // namespace smelt

int main(int argc, char** argv) {
  smelt::OptionTable options(
      "bench",
      "Measures a training step of reference models against the rate of a large matrix product.");
  options.list("case", "NAME", "only these cases: A, A-smelt; default: all");
  options.list("dtype", "NAME", "only these dtypes: f32, bf16; default: both");
  options.integer("steps", 5, 1, 1000, "steps",
                  "timed steps of each case, after two that are not timed; the median counts");
  options.text("out", "", "FILE", "also write the JSON document to this file");
  return smelt::run_program(argc, argv, options, smelt::bench);
}
