#include "nn/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "tensor/error.h"
#include "tensor/rng.h"

namespace smelt {

void validate(const SamplingConfig& config) {
  SMELT_CHECK(ConfigError, std::isfinite(config.temperature) && config.temperature >= 0,
              "temperature = " << config.temperature << " must be 0 (greedy) or positive");
  SMELT_CHECK(ConfigError, config.top_k >= 0,
              "top_k = " << config.top_k << " must be 0 (all) or positive");
  SMELT_CHECK(ConfigError, config.top_p > 0 && config.top_p <= 1,
              "top_p = " << config.top_p << " must be in (0, 1]");
}

int32_t sample_token(const std::vector<float>& logits, const SamplingConfig& config,
                     uint64_t sequence, uint64_t index) {
  const auto best = std::max_element(logits.begin(), logits.end(), [](float a, float b) {
    return std::isnan(a) ? !std::isnan(b)
                         : a < b;  // NaN ranks below everything; first maximum wins
  });
  SMELT_CHECK(RunError, best != logits.end(), "sampling: no logits");
  SMELT_CHECK(RunError, std::isfinite(*best),
              "sampling: the largest of " << logits.size() << " logits is " << *best);
  if (config.temperature == 0) return int32_t(best - logits.begin());

  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::erase_if(ids, [&](int32_t id) { return std::isnan(logits[size_t(id)]); });
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
  if (config.top_k > 0 && size_t(config.top_k) < ids.size()) ids.resize(size_t(config.top_k));
  std::vector<double> weights;
  for (const int32_t id : ids)
    weights.push_back(std::exp((double(logits[size_t(id)]) - double(*best)) / config.temperature));
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < config.top_p * total))
    kept += weights[count++];
  const Random random(config.seed, "sampling/" + std::to_string(sequence));
  double at = random.uniform(index) * kept;
  for (size_t i = 0; i < count; ++i) {
    at -= weights[i];
    if (at < 0) return ids[i];
  }
  return ids[count - 1];
}

}  // namespace smelt
