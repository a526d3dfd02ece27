// smelt-bench growth: how time and memory grow with the sizes that should only add work, and what
// recomputation trades.
#include <algorithm>
#include <cstdio>

#include <boost/json.hpp>

#include "apps/bench/measure.h"
#include "apps/common/metrics.h"
#include "apps/common/progress.h"

namespace smelt {
namespace {

namespace json = boost::json;

/// One training configuration whose step is timed.
struct Point {
  ModelConfig model;
  int64_t batch = 4, seq_len = 512;
  Recompute recompute = Recompute::none;
};

Point base() {
  Point p;
  p.model.hidden_size = 256;
  p.model.num_layers = 4;
  p.model.num_heads = 4;
  p.model.num_kv_heads = 2;
  p.model.head_dim = 64;
  p.model.num_experts = 32;
  p.model.top_k = 4;
  p.model.expert_hidden_size = 192;
  p.model.vocab_size = 4096;
  p.model.max_seq_len = 16384;
  return p;
}

Point point(const std::string& name) {
  Point p = base();
  if (name == "tokens") p.batch *= 2;
  if (name == "experts") p.model.num_experts *= 2;
  if (name == "layers") p.model.num_layers *= 2;
  if (name == "length-4096" || name == "length-8192") {
    p.batch = 1;
    p.seq_len = name == "length-4096" ? 4096 : 8192;
  }
  if (name.starts_with("recompute")) p.batch *= 2;
  if (name == "recompute-moe") p.recompute = Recompute::moe;
  if (name == "recompute-block") p.recompute = Recompute::block;
  return p;
}

const std::vector<std::string> kPoints = {"base",           "tokens",        "experts",
                                          "layers",         "length-4096",   "length-8192",
                                          "recompute-none", "recompute-moe", "recompute-block"};

json::object measure(const std::string& name) {
  const int64_t idle = memory_use().current_bytes;
  const Point p = point(name);
  TrainingLoad load(p.model, DType::f32, p.batch, p.seq_len, p.recompute);
  load.step();
  const double seconds = best_of(3, [&] { load.step(); });
  return {{"name", name},
          {"step_seconds", seconds},
          {"peak_rss_bytes", memory_use().peak_bytes - idle}};
}

}  // namespace

OptionTable growth_options() {
  OptionTable options("bench growth",
                      "Doubles tokens, experts, layers and the length of one document, one at a "
                      "time, and switches recomputation on; each in a process of its own.");
  options.word(
      "point", "all",
      [] {
        std::vector<std::string> words = kPoints;
        words.push_back("all");
        return words;
      }(),
      "measure this alone");
  options.text("out", "", "FILE", "also write the JSON document to this file");
  return options;
}

int run_growth(const Arguments& arguments) {
  if (arguments.text("point") != "all") {
    finish(arguments, {{"points", json::array{measure(arguments.text("point"))}}});
    return 0;
  }
  std::FILE* out = table_stream(arguments);
  json::object by_name;
  json::array points;
  for (const std::string& name : kPoints) {
    points.push_back(run_apart({"growth", "--point=" + name}, "points"));
    by_name[name] = points.back();
  }
  const auto ratio = [&](const char* key, const char* name, const char* to) {
    return by_name.at(name).at(key).to_number<double>() /
           by_name.at(to).at(key).to_number<double>();
  };
  json::array ratios;
  std::fprintf(out, "%-44s %10s %12s\n", "", "time", "peak memory");
  for (const auto& [text, name, to] :
       {std::tuple{"twice the tokens", "tokens", "base"},
        {"twice the experts, top_k as it was", "experts", "base"},
        {"twice the layers", "layers", "base"},
        {"one document of 8192 tokens for 4096", "length-8192", "length-4096"},
        {"recompute = moe for none", "recompute-moe", "recompute-none"},
        {"recompute = block for none", "recompute-block", "recompute-none"}}) {
    const double time = ratio("step_seconds", name, to), memory = ratio("peak_rss_bytes", name, to);
    std::fprintf(out, "%-44s %9.2fx %11.2fx\n", text, time, memory);
    ratios.push_back(json::object{{"name", name}, {"time", time}, {"peak_memory", memory}});
  }
  finish(arguments, {{"points", points}, {"ratios", ratios}});
  return 0;
}

}  // namespace smelt
