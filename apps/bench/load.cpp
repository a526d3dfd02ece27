// smelt-bench load: how fast a checkpoint becomes a model, against a plain read of the same files,
// and how much memory that takes beyond the model.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <boost/json.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "apps/bench/measure.h"
#include "apps/common/checkpoint.h"
#include "apps/common/metrics.h"
#include "apps/common/model_folder.h"
#include "apps/common/progress.h"
#include "moe/budget.h"
#include "tensor/allocator.h"

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

/// Reads the files from beginning to end, 4 MiB at a time, either all into the same buffer or one
/// behind the other into memory as large as they are; returns their bytes.
int64_t read_plainly(const ModelFolder& folder, char* memory, bool into_one_buffer) {
  int64_t bytes = 0;
  for (const auto& file : folder.files().files()) {
    const int fd = open(file->path().c_str(), O_RDONLY | O_CLOEXEC);
    SMELT_CHECK(IoError, fd >= 0, file->path().string() << ": cannot open");
    while (const ssize_t got = read(fd, memory + (into_one_buffer ? 0 : bytes), 4 << 20)) {
      SMELT_CHECK(IoError, got > 0, file->path().string() << ": cannot read");
      bytes += got;
    }
    close(fd);
  }
  return bytes;
}

json::object measure(const std::string& path, DType dtype) {
  const ModelFolder folder(path);
  std::vector<char> buffer(4 << 20);
  // The first pass brings the files into the page cache, as far as it has room.
  const auto bytes = read_plainly(folder, buffer.data(), true);
  const double to_buffer = best_of(3, [&] { read_plainly(folder, buffer.data(), true); });
  const dist::World world(1);
  const int64_t idle = memory_use().current_bytes;
  std::unique_ptr<MoeTransformer> model;
  const double fresh = seconds_of([&] {
    model = std::make_unique<MoeTransformer>(folder.json().config, dtype, world);
    load_model(path, *model);
  });
  const int64_t peak = memory_use().peak_bytes - idle;
  const double again = best_of(3, [&] { load_model(path, *model); });
  const double held = double(model->parameters().numel() * size_of(dtype));
  model.reset();
  allocator().trim();
  const Tensor memory = Tensor::empty({bytes / 4 + (1 << 20)});
  char* const target = static_cast<char*>(memory.raw());
  const double to_fresh = seconds_of([&] { read_plainly(folder, target, false); });
  const double to_memory = best_of(3, [&] { read_plainly(folder, target, false); });
  return {{"dtype", to_text(dtype)},
          {"file_bytes", bytes},
          {"read_to_buffer_bytes_per_second", double(bytes) / to_buffer},
          {"read_to_memory_bytes_per_second", double(bytes) / to_memory},
          {"read_to_fresh_memory_bytes_per_second", double(bytes) / to_fresh},
          {"load_bytes_per_second", double(bytes) / again},
          {"build_and_load_bytes_per_second", double(bytes) / fresh},
          {"peak_rss_of_model", double(peak) / held}};
}

}  // namespace

OptionTable load_options() {
  OptionTable options(
      "bench load",
      "Loads a checkpoint into a model, in f32 and in bf16, each in a process of its "
      "own, and compares with reading its files from beginning to end: into one "
      "buffer, which stays in the processor's cache, and into memory as large as "
      "the files, as a model needs.");
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
    finish(arguments,
           {{"loads", json::array{measure(path, dtype == "bf16" ? DType::bf16 : DType::f32)}}});
    return 0;
  }
  const bool made = path.empty();
  if (made) {
    path = (fs::temp_directory_path() / ("smelt-bench-load-" + std::to_string(getpid()))).string();
    write_checkpoint(path, model_of(1e9 * arguments.number("size")));
  }
  json::array loads;
  std::FILE* out = table_stream(arguments);
  for (const char* dtype : {"f32", "bf16"}) {
    loads.push_back(
        run_apart({"load", "--checkpoint=" + path, std::string("--dtype=") + dtype}, "loads"));
    const json::object& r = loads.back().as_object();
    const auto value = [&](const char* key) { return r.at(key).to_number<double>(); };
    const auto row = [&](const char* what, const char* key, const char* of) {
      const double rate = value(key);
      std::fprintf(out, "  %-52s %12s/s", what, human_bytes(rate).c_str());
      if (*of) std::fprintf(out, " %5.0f%%", 100 * rate / value(of));
      std::fprintf(out, "\n");
    };
    std::fprintf(out, "%s of files into a model in %s, peak memory %.2f x the model's\n",
                 human_bytes(value("file_bytes")).c_str(), dtype, value("peak_rss_of_model"));
    row("files read into one buffer of 4 MiB", "read_to_buffer_bytes_per_second", "");
    row("files read into memory of their size", "read_to_memory_bytes_per_second", "");
    row("the same, memory that is new", "read_to_fresh_memory_bytes_per_second", "");
    row("model loaded again", "load_bytes_per_second", "read_to_memory_bytes_per_second");
    row("model made and loaded, into new memory", "build_and_load_bytes_per_second", "");
  }
  if (made) fs::remove_all(path);
  finish(arguments, {{"loads", loads}});
  return 0;
}

}  // namespace smelt
