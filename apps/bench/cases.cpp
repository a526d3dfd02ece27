#include "apps/bench/cases.h"

namespace smelt {
namespace {

std::vector<BenchCase> make_cases() {
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

  ModelConfig a_smelt = a;  // F 1.002, KV 1.031, N 1.000
  a_smelt.hidden_size = 448;
  a_smelt.head_dim = 44;
  a_smelt.num_experts = 96;
  a_smelt.expert_hidden_size = 136;
  a_smelt.loop.layers = 4;
  a_smelt.loop.visits = 2;

  ModelConfig b;
  b.hidden_size = 672;
  b.num_layers = 10;
  b.num_heads = 12;
  b.num_kv_heads = 4;
  b.head_dim = 56;
  b.num_experts = 8;
  b.top_k = 8;
  b.expert_hidden_size = 544;
  b.vocab_size = 32768;

  ModelConfig b_smelt = b;  // F 1.027, KV 0.964, N 0.998
  b_smelt.hidden_size = 576;
  b_smelt.head_dim = 36;
  b_smelt.num_experts = 12;
  b_smelt.expert_hidden_size = 448;
  b_smelt.loop.layers = 5;
  b_smelt.loop.visits = 2;

  return {{"A", a, 8, 512, 3},
          {"A-smelt", a_smelt, 8, 512, 3},
          {"B", b, 2, 1024, 2},
          {"B-smelt", b_smelt, 2, 1024, 2}};
}

}  // namespace

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> cases = make_cases();
  return cases;
}

}  // namespace smelt
