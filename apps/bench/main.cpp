// smelt-bench: rate of a whole training step against the rate of a large matrix product in the same
// process, which is what the hardware gives.
//
// Several cases run in a child process each: peak memory is then a case's own, and no case finds
// the allocator as another has left it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <vector>

#include <boost/json.hpp>
#include <omp.h>

#include "apps/bench/cases.h"
#include "apps/common/cli.h"
#include "apps/common/metrics.h"
#include "apps/common/model_json.h"
#include "apps/common/output_file.h"
#include "apps/common/process.h"
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

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

json::object measure_machine() {
  return {{"cpu", processor_name()},
          {"threads", omp_get_max_threads()},
          {"matrix_rate_f32", matrix_rate(DType::f32)},
          {"matrix_rate_bf16", matrix_rate(DType::bf16)},
          {"native_bf16", has_native_bf16()},
          {"copy_bytes_per_second", copy_rate()}};
}

/// Trains on random tokens; the rate of the matrix product is measured after the peak of memory has
/// been read, and before anything else is computed.
json::object run_here(const BenchCase& c, DType dtype, int64_t steps) {
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
  step();
  std::vector<double> times;
  for (int64_t i = 0; i < steps; ++i) times.push_back(seconds_of(step));
  std::sort(times.begin(), times.end());
  const double median = (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
  const int64_t peak_bytes = memory_use().peak_bytes;
  const Budget budget = budget_of(c.model, double(c.seq_len + 1) / 2);
  const double flops = (budget.flops_per_token + budget.flops_head) * double(T) / median;
  return {{"name", c.name},
          {"dtype", name_of(dtype)},
          {"tokens_per_second", double(T) / median},
          {"model_flops_per_second", flops},
          {"fraction_of_matrix_rate", flops / matrix_rate(dtype)},
          {"step_seconds", median},
          {"step_seconds_min", times.front()},
          {"params_total", budget.params_total},
          {"peak_rss_bytes", peak_bytes}};
}

/// The same in a process of its own: smelt-bench with one case and one dtype.
json::object run_apart(const BenchCase& c, DType dtype, int64_t steps) {
  CommandStream child({std::filesystem::read_symlink("/proc/self/exe").string(), "--case=" + c.name,
                       std::string("--dtype=") + to_text(dtype), "--steps=" + std::to_string(steps),
                       "--json"});
  std::string text;
  char buffer[4096];
  while (const size_t count = child.read(buffer, sizeof buffer)) text.append(buffer, count);
  child.finish();
  return json::parse(text).at("cases").at(0).as_object();
}

/// Sizes of all cases; a case's "config" is the config.json of its model.
json::object list_cases() {
  json::array cases;
  for (const BenchCase& c : bench_cases())
    cases.push_back({{"name", c.name},
                     {"batch", c.batch},
                     {"seq_len", c.seq_len},
                     {"params_total", budget_of(c.model, 0).params_total},
                     {"config", json::parse(write_model_json(c.model, -1))}});
  return {{"cases", cases}};
}

struct Job {
  BenchCase bench_case;
  DType dtype;
  int64_t steps;
};

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The cases and dtypes asked for; all where none is. @throws ConfigError for a name that is none.
std::vector<Job> jobs_of(const Arguments& arguments) {
  std::vector<std::string> cases = arguments.list("case"), dtypes = arguments.list("dtype"), known;
  for (const BenchCase& c : bench_cases()) known.push_back(c.name);
  for (const std::string& name : cases)
    SMELT_CHECK(ConfigError, contains(known, name),
                "--case=" << name << ": --list prints the cases");
  for (const std::string& name : dtypes)
    SMELT_CHECK(ConfigError, name == "f32" || name == "bf16",
                "--dtype=" << name << ": must be f32|bf16");
  const int64_t steps = arguments.integer("steps");
  std::vector<Job> jobs;
  for (const BenchCase& c : bench_cases()) {
    for (const DType dtype : {DType::f32, DType::bf16})
      if ((cases.empty() || contains(cases, c.name)) &&
          (dtypes.empty() || contains(dtypes, to_text(dtype))))
        jobs.push_back({c, dtype, steps > 0 ? steps : c.steps});
  }
  return jobs;
}

void print_machine(std::FILE* out, const json::object& machine) {
  std::fprintf(out,
               "%s, %d threads: 2048^3 product %sFLOP/s in f32, %sFLOP/s in bf16%s, copy %s/s\n",
               machine.at("cpu").as_string().c_str(), int(machine.at("threads").as_int64()),
               human_count(machine.at("matrix_rate_f32").as_double()).c_str(),
               human_count(machine.at("matrix_rate_bf16").as_double()).c_str(),
               machine.at("native_bf16").as_bool() ? "" : " (widened to f32)",
               human_bytes(machine.at("copy_bytes_per_second").as_double()).c_str());
  std::fprintf(out, "\n%-10s %-6s %12s %14s %16s %12s %12s\n", "case", "dtype", "tokens/s",
               "model FLOP/s", "of matrix rate", "step", "peak RSS");
}

void print_result(std::FILE* out, const json::object& r) {
  std::fprintf(out, "%-10s %-6s %12s %14s %15.1f%% %12s %12s\n", r.at("name").as_string().c_str(),
               r.at("dtype").as_string().c_str(),
               human_count(r.at("tokens_per_second").as_double()).c_str(),
               human_count(r.at("model_flops_per_second").as_double()).c_str(),
               100 * r.at("fraction_of_matrix_rate").as_double(),
               human_duration(r.at("step_seconds").as_double()).c_str(),
               human_bytes(double(r.at("peak_rss_bytes").as_int64())).c_str());
  std::fflush(out);
}

int bench(const Arguments& arguments) {
  std::FILE* out = arguments.json() ? stderr : stdout;
  json::object document;
  if (arguments.flag("list")) {
    document = list_cases();
    for (const BenchCase& c : bench_cases())
      std::fprintf(out, "%s: %lld x %lld tokens\n", c.name.c_str(), (long long)c.batch,
                   (long long)c.seq_len);
  } else {
    const std::vector<Job> jobs = jobs_of(arguments);
    json::array results;
    // Alone, the case comes first: what measures the machine would count into its peak of memory.
    if (jobs.size() == 1)
      results.push_back(run_here(jobs[0].bench_case, jobs[0].dtype, jobs[0].steps));
    document["machine"] = measure_machine();
    print_machine(out, document["machine"].as_object());
    if (jobs.size() == 1) print_result(out, results[0].as_object());
    for (size_t i = 0; jobs.size() > 1 && i < jobs.size(); ++i) {
      results.push_back(run_apart(jobs[i].bench_case, jobs[i].dtype, jobs[i].steps));
      print_result(out, results[i].as_object());
    }
    document["cases"] = results;
  }
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
      "Measures a training step of reference models against the rate of a large matrix product. "
      "Several cases run in a process each.");
  options.list("case", "NAME", "only these cases: A, A-smelt, B, B-smelt; default: all");
  options.list("dtype", "NAME", "only these dtypes: f32, bf16; default: both");
  options.integer("steps", 0, 0, 1000, "steps",
                  "timed steps of each case, after one that is not timed; the median counts; 0: 3 "
                  "for A, 2 for B");
  options.flag("list", "print the cases and do nothing else; with --json, the models too");
  options.text("out", "", "FILE", "also write the JSON document to this file");
  return smelt::run_program(argc, argv, options, smelt::bench);
}
