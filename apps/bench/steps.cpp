// smelt-bench: rate of a whole training step against the rate of a large matrix product in the same
// process, which is what the hardware gives, and where the step's time goes.
#include <algorithm>
#include <cstdio>

#include <boost/json.hpp>

#include "apps/bench/measure.h"
#include "apps/common/metrics.h"
#include "apps/common/model_json.h"
#include "apps/common/profile.h"
#include "apps/common/progress.h"
#include "moe/budget.h"

namespace smelt {
namespace {

namespace json = boost::json;

/// Shares of one more step's time by operation, those of at least 1 %.
json::object operation_shares(TrainingLoad& load) {
  const Profiler profiler;
  const double elapsed = seconds_of([&] { load.step(); });
  json::object shares;
  for (const OperationTotal& total : operation_totals(profiler.events(), elapsed))
    if (total.seconds >= 0.01 * elapsed) shares[total.name] = total.seconds / elapsed;
  return shares;
}

/// The rate of the matrix product is measured after the peak of memory has been read, and before
/// anything else is computed.
json::object run_here(const BenchCase& c, DType dtype, int64_t steps) {
  TrainingLoad load(c.model, dtype, c.batch, c.seq_len);
  load.step();
  std::vector<double> times;
  for (int64_t i = 0; i < steps; ++i) times.push_back(seconds_of([&] { load.step(); }));
  std::sort(times.begin(), times.end());
  const double median = (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
  const double tokens = double(c.batch * c.seq_len);
  const int64_t peak_bytes = memory_use().peak_bytes;
  const Budget budget = budget_of(c.model, double(c.seq_len + 1) / 2);
  const double flops = (budget.flops_per_token + budget.flops_head) * tokens / median;
  return {{"name", c.name},
          {"dtype", name_of(dtype)},
          {"tokens_per_second", tokens / median},
          {"model_flops_per_second", flops},
          {"fraction_of_matrix_rate", flops / matrix_rate(dtype)},
          {"step_seconds", median},
          {"step_seconds_min", times.front()},
          {"params_total", budget.params_total},
          {"peak_rss_bytes", peak_bytes},
          {"operation_shares", operation_shares(load)}};
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

/// The largest shares of each case, below the table.
void print_shares(std::FILE* out, const json::array& results) {
  std::fprintf(out, "\nshares of a step's time\n");
  for (const json::value& result : results) {
    std::string line = std::string(result.at("name").as_string()) + " " +
                       std::string(result.at("dtype").as_string()) + ":";
    for (const auto& [name, share] : result.at("operation_shares").as_object()) {
      char text[80];
      std::snprintf(text, sizeof text, " %s %.0f%%", std::string(name).c_str(),
                    100 * share.as_double());
      if (line.size() + std::string(text).size() > 100) {
        std::fprintf(out, "%s\n", line.c_str());
        line = " ";
      }
      line += text;
    }
    std::fprintf(out, "%s\n", line.c_str());
  }
}

}  // namespace

OptionTable steps_options() {
  OptionTable options(
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
  return options;
}

int run_steps(const Arguments& arguments) {
  std::FILE* out = table_stream(arguments);
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
      results.push_back(run_apart(
          {"--case=" + jobs[i].bench_case.name, std::string("--dtype=") + to_text(jobs[i].dtype),
           "--steps=" + std::to_string(jobs[i].steps)},
          "cases"));
      print_result(out, results[i].as_object());
    }
    print_shares(out, results);
    document["cases"] = results;
  }
  finish(arguments, document);
  return 0;
}

}  // namespace smelt
