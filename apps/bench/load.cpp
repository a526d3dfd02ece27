// smelt-bench load: how fast a checkpoint becomes a model, against a plain read of the same files,
// and how much memory that takes beyond the model.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <boost/json.hpp>
#include <unistd.h>

#include "apps/bench/measure.h"
#include "apps/common/checkpoint.h"
#include "apps/common/metrics.h"
#include "apps/common/model_folder.h"
#include "apps/common/progress.h"
#include "moe/budget.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// A model of about so many bytes in f32, by its number of experts.
ModelConfig model_of(double bytes) {
  ModelConfig c;
  c.hidden_size = 768;
  c.num_layers = 12;
  c.num_heads = 12;
  c.num_kv_heads = 4;
  c.head_dim = 64;
  c.expert_hidden_size = 384;
  c.top_k = 4;
  c.vocab_size = 32768;
  c.num_experts = 4;
  const double start = double(budget_of(c, 1).params_total);
  c.num_experts = 8;
  const double expert = (double(budget_of(c, 1).params_total) - start) / 4;
  c.num_experts = std::max<int64_t>(4, 4 + int64_t((bytes / 4 - start) / expert));
  return c;
}

/// Every tensor of a model as random-looking values, written one at a time.
void write_checkpoint(const std::string& folder, const ModelConfig& config) {
  fs::create_directories(folder);
  std::vector<TensorSpec> specs;
  for_each_tensor(config, false, [&](const std::string& name, const Shape& shape) {
    specs.push_back({name, DType::f32, shape});
  });
  ShardedWriter writer(folder, "model", 1'000'000'000, specs);
  for (const TensorSpec& spec : writer.order()) {
    const Tensor tensor = Tensor::empty(spec.shape);
    float* const values = tensor.data<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = float(i % 8191) * 1e-5f - 0.04f;
    writer.write(spec.name, tensor);
  }
  writer.publish();
  write_file(folder + "/config.json", write_model_json(config, -1));
}

/// Reads the files from beginning to end into one buffer; returns their bytes.
double read_plainly(const ModelFolder& folder) {
  std::vector<char> buffer(4 << 20);
  double bytes = 0;
  for (const auto& file : folder.files().files()) {
    std::ifstream in(file->path(), std::ios::binary);
    in.rdbuf()->pubsetbuf(nullptr, 0);
    while (in.read(buffer.data(), std::streamsize(buffer.size())) || in.gcount() > 0)
      bytes += double(in.gcount());
  }
  return bytes;
}

json::object measure(const std::string& path, DType dtype) {
  const ModelFolder folder(path);
  read_plainly(folder);  // into the page cache, as far as it has room
  double bytes = 0;
  const double plain = best_of(3, [&] { bytes = read_plainly(folder); });
  const dist::World world(1);
  const int64_t idle = memory_use().current_bytes;
  std::unique_ptr<MoeTransformer> model;
  const double build = seconds_of([&] {
    model = std::make_unique<MoeTransformer>(folder.json().config, dtype, world);
  });
  const double first = seconds_of([&] { load_model(path, *model); });
  const int64_t peak = memory_use().peak_bytes - idle;
  const double again = best_of(2, [&] { load_model(path, *model); });
  const double held = double(model->parameters().numel() * size_of(dtype));
  return {{"dtype", to_text(dtype)},
          {"file_bytes", bytes},
          {"plain_read_bytes_per_second", bytes / plain},
          {"build_seconds", build},
          {"load_seconds", first},
          {"load_bytes_per_second", bytes / first},
          {"load_again_bytes_per_second", bytes / again},
          {"load_of_plain_read", plain / first},
          {"build_and_load_of_plain_read", plain / (build + first)},
          {"peak_rss_of_model", double(peak) / held}};
}

}  // namespace

OptionTable load_options() {
  OptionTable options("bench load",
                      "Loads a checkpoint into a model, in f32 and in bf16, each in a process of its "
                      "own, and compares with reading its files from beginning to end into a "
                      "buffer.");
  options.text("checkpoint", "", "DIR",
               "this checkpoint or Hugging Face folder; none: one of --size in a temporary folder");
  options.number("size", 4, 0.01, 1000, "GB", "of the checkpoint that is made, in f32");
  options.word("dtype", "all", {"all", "f32", "bf16"}, "of the model");
  options.text("out", "", "FILE", "also write the JSON document to this file");
  return options;
}

int run_load(const Arguments& arguments) {
  std::string path = arguments.text("checkpoint");
  if (const std::string dtype = arguments.text("dtype"); !path.empty() && dtype != "all") {
    finish(arguments, {{"loads", json::array{measure(
                                     path, dtype == "bf16" ? DType::bf16 : DType::f32)}}});
    return 0;
  }
  const bool made = path.empty();
  if (made) {
    path = (fs::temp_directory_path() / ("smelt-bench-load-" + std::to_string(getpid()))).string();
    write_checkpoint(path, model_of(1e9 * arguments.number("size")));
  }
  json::array loads;
  std::FILE* out = table_stream(arguments);
  std::fprintf(out, "%-6s %10s %14s %14s %12s %18s %14s\n", "model", "files", "plain read/s", "load/s",
               "of the read", "with construction", "peak memory");
  for (const char* dtype : {"f32", "bf16"}) {
    loads.push_back(run_apart(
        {"load", "--checkpoint=" + path, std::string("--dtype=") + dtype}, "loads"));
    const json::object& r = loads.back().as_object();
    const auto value = [&](const char* key) { return r.at(key).to_number<double>(); };
    std::fprintf(out, "%-6s %10s %14s %14s %11.0f%% %17.0f%% %12.2f x\n", dtype,
                 human_bytes(value("file_bytes")).c_str(),
                 human_bytes(value("plain_read_bytes_per_second")).c_str(),
                 human_bytes(value("load_bytes_per_second")).c_str(),
                 100 * value("load_of_plain_read"), 100 * value("build_and_load_of_plain_read"),
                 value("peak_rss_of_model"));
  }
  if (made) fs::remove_all(path);
  finish(arguments, {{"loads", loads}});
  return 0;
}

}  // namespace smelt
