// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <vector>

namespace smelt {

struct SamplingConfig {
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;       // keep the k most likely tokens; 0: all
  double top_p = 1;        // then the smallest set whose probability reaches p
  uint64_t seed = 0;
};

/// @throws ConfigError naming the option and its value.
void validate(const SamplingConfig& config);

/// Token id for logits [V]. Greedy ties go to the lowest id. Otherwise token number `index` of
/// sequence `sequence` always gets the same random number for the same seed.
/// NaN is never chosen. @throws RunError when the largest other logit is not finite.
int32_t sample_token(const std::vector<float>& logits, const SamplingConfig& config,
                     uint64_t sequence, uint64_t index);

}  // namespace smelt
