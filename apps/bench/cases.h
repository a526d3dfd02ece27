// The models that smelt-bench measures: two Baselines, each with the looped model that matches its
// budgets.
#pragma once

#include <string>
#include <vector>

#include "moe/config.h"

namespace smelt {

struct BenchCase {
  std::string name;
  ModelConfig model;
  int64_t batch = 0, seq_len = 0;  // sequences and tokens in each, of one step
  int64_t steps = 0;               // timed steps when nothing else is asked for
};

/// A: 23M active parameters of 144M, 8 of 64 experts. B: the fully active model of the 100M scale
/// (SMELT, arXiv 2609.01343), where all 8 experts see every token. NAME-smelt runs the middle half
/// of its layers twice, with 1.5 times the experts; against NAME, at the mean context of these
/// sequences, F and KV lie within 4 % and N within 1 %.
const std::vector<BenchCase>& bench_cases();

}  // namespace smelt
