#include "apps/bench/measure.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <boost/json.hpp>
#include <omp.h>

#include "apps/common/metrics.h"
#include "apps/common/output_file.h"
#include "apps/common/process.h"
#include "tensor/gemm.h"
#include "tensor/rng.h"

namespace smelt {
namespace {

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

ModelInput random_input(int64_t batch, int64_t seq_len, int64_t vocab_size) {
  const Random random(1, "bench/tokens");
  const int64_t T = batch * seq_len;
  std::vector<int32_t> tokens, targets;
  for (int64_t t = 0; t < T; ++t) {
    tokens.push_back(int32_t(random.below(uint64_t(t), uint64_t(vocab_size))));
    targets.push_back(int32_t(random.below(uint64_t(T + t), uint64_t(vocab_size))));
  }
  return {Tensor::from(tokens), Tensor::from(targets),
          SequenceLayout::from_document_starts(batch, seq_len, std::vector<int32_t>(size_t(T), 0))};
}

}  // namespace

double read_rate() {
  const Tensor x = Tensor::zeros({int64_t{64} << 20});
  const float* const values = x.data<float>();
  const int64_t count = x.numel();
  constexpr int64_t kSums = 128;  // independent ones: an addition need not wait for the last
  float total = 0;
  const double seconds = best_of(5, [&] {
#pragma omp parallel reduction(+ : total)
    {
      float sums[kSums] = {};
#pragma omp for schedule(static)
      for (int64_t i = 0; i < count; i += kSums)
        for (int64_t j = 0; j < kSums; ++j) sums[j] += values[i + j];
      for (const float sum : sums) total += sum;
    }
  });
  SMELT_CHECK(Error, total == 0, "read_rate: a sum of zeros is " << total);
  return double(x.bytes()) / seconds;
}

boost::json::object measure_machine() {
  return {{"cpu", processor_name()},
          {"threads", omp_get_max_threads()},
          {"matrix_rate_f32", matrix_rate(DType::f32)},
          {"matrix_rate_bf16", matrix_rate(DType::bf16)},
          {"native_bf16", has_native_bf16()},
          {"copy_bytes_per_second", copy_rate()}};
}

TrainingLoad::TrainingLoad(const ModelConfig& model, DType dtype, int64_t batch, int64_t seq_len,
                           Recompute recompute)
    : model_(model, dtype, world_),
      optimizer_((model_.parameters().initialize(1), model_.parameters()), world_, {}),
      input_(random_input(batch, seq_len, model.vocab_size)) {
  model_.set_recompute(recompute);
}

void TrainingLoad::step() {
  train_step(model_, optimizer_, world_, {input_}, {.lr = 1e-4, .grad_clip = 1, .balance = {}});
}

boost::json::object run_apart(const std::vector<std::string>& options, const std::string& key) {
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string()};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back("--json");
  CommandStream child(words);
  std::string text;
  char buffer[4096];
  while (const size_t count = child.read(buffer, sizeof buffer)) text.append(buffer, count);
  child.finish();
  return boost::json::parse(text).at(key).at(0).as_object();
}

std::FILE* table_stream(const Arguments& arguments) { return arguments.json() ? stderr : stdout; }

void finish(const Arguments& arguments, const boost::json::object& document) {
  if (const std::string path = arguments.text("out"); !path.empty())
    write_file(path, json_line(document) + "\n");
  if (arguments.json()) std::cout << json_line(document) << "\n";
}

}  // namespace smelt
