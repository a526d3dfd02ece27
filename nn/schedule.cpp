#include "nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensor/error.h"

namespace smelt {

double learning_rate(const ScheduleConfig& config, int64_t step) {
  SMELT_CHECK(ConfigError, step >= 1, "learning_rate: step " << step << " must be at least 1");
  if (step <= config.warmup_steps) return config.lr * double(step) / double(config.warmup_steps);
  const int64_t decay = config.schedule == Schedule::wsd ? config.decay_steps
                                                         : config.total_steps - config.warmup_steps;
  const int64_t into_decay = step - std::max(config.total_steps - decay, config.warmup_steps);
  if (config.schedule == Schedule::constant || decay <= 0 || into_decay <= 0) return config.lr;
  const int64_t length =
      config.total_steps - std::max(config.total_steps - decay, config.warmup_steps);
  const double progress = std::min(1.0, double(into_decay) / double(std::max<int64_t>(length, 1)));
  const double remaining = config.schedule == Schedule::cosine
                               ? 0.5 * (1 + std::cos(std::numbers::pi * progress))
                               : 1 - progress;
  return config.lr * (config.min_lr_ratio + (1 - config.min_lr_ratio) * remaining);
}

}  // namespace smelt
