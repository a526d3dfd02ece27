// Tiny run folders for the tests of smelt-eval: an untrained model, two token files, metrics.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "apps/common/checkpoint.h"
#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "tests/apps/data_files.h"

namespace smelt::testing {

inline constexpr int64_t kSeqLen = 8;

/// Token file of texts, each ended by the end-of-document id; the texts are the documents.
inline void write_texts(const std::string& prefix, const std::vector<std::string>& texts) {
  const ByteTokenizer tokenizer;
  Documents documents;
  for (const std::string& text : texts) {
    documents.push_back(tokenizer.encode(text));
    documents.back().push_back(tokenizer.eod_id());
  }
  write_tokens(prefix, documents);
}

inline RunConfig tiny_config(const ScratchFolder& scratch, int64_t visits) {
  RunConfig config;
  config.model.hidden_size = 16;
  config.model.num_layers = 2;
  config.model.num_heads = 2;
  config.model.num_kv_heads = 1;
  config.model.head_dim = 8;
  config.model.num_experts = 4;
  config.model.expert_hidden_size = 8;
  config.model.max_seq_len = 64;
  if (visits > 1) {
    config.model.loop.layers = 1;
    config.model.loop.visits = visits;
  }
  config.train.seq_len = kSeqLen;
  config.data.valid = {{"code", scratch.path("code.valid"), 1},
                       {"web", scratch.path("web.valid"), 1}};
  return config;
}

/// Writes the run folder NAME with one checkpoint (step 7 of 7 x 64 tokens) and returns its path.
/// @param uniform  make the model indifferent: every token has probability 1 / vocab_size
inline std::string make_run(const ScratchFolder& scratch, const std::string& name, int64_t visits,
                            bool uniform = false) {
  if (!std::filesystem::exists(scratch.path("code.valid.bin"))) {
    write_texts(scratch.path("code.valid"), {"int main() { return 0; }", "x = 1"});
    write_texts(scratch.path("web.valid"), {"once upon a time there was a loop"});
  }
  const RunConfig config = tiny_config(scratch, visits);
  const dist::World world(1);
  MoeTransformer model(config.model, DType::f32, world);
  model.parameters().initialize(3);
  if (uniform) {
    for (Parameter* parameter : model.parameters().all())
      if (parameter->name == "lm_head.weight") parameter->value.data().fill_(0);
  }
  const ShardedOptimizer optimizer(model.parameters(), world, AdamWConfig{});
  const std::string run = scratch.path(name);
  std::filesystem::create_directories(run + "/checkpoints");
  TrainerState state;
  state.step = 7;
  state.tokens = 448;
  state.mean_context = 4;
  save_checkpoint(
      run + "/checkpoints/step-7", model, optimizer, world, state, config,
      {ByteTokenizer().json_text(), ByteTokenizer().config_text(), ByteTokenizer::kEod});
  std::ofstream metrics(run + "/metrics.jsonl");
  for (int step = 1; step <= 5; ++step) {
    metrics << "{\"step\":" << step << ",\"tokens\":" << step * 64 << ",\"loss\":" << 6 - step
            << ",\"tokens_per_second\":" << step * 100 << "}\n";
  }
  metrics << "{\"step\":5,\"tokens\":320,\"valid\":{\"overall\":{\"nats_per_token\":1.5,"
             "\"bits_per_byte\":2.25}}}\n";
  return run;
}

}  // namespace smelt::testing
