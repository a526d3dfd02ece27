#include "nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensor/error.h"

namespace smelt {

double learning_rate(const ScheduleConfig& config, int64_t step) {
  SMELT_CHECK(ConfigError, step >= 1, "learning_rate: step " << step << " must be at least 1");
  // A run without warm-up has its peak at the first step, so a decay over all steps begins after
  // it.
  const int64_t warmup = std::max<int64_t>(config.warmup_steps, 1);
  if (step <= warmup) return config.lr * double(step) / double(warmup);
  const int64_t length = config.schedule == Schedule::wsd
                             ? std::min(config.decay_steps, config.total_steps - warmup)
                             : config.total_steps - warmup;
  const int64_t into_decay = step - (config.total_steps - length);
  if (config.schedule == Schedule::constant || length <= 0 || into_decay <= 0) return config.lr;
  const double progress = std::min(1.0, double(into_decay) / double(length));
  const double remaining = config.schedule == Schedule::cosine
                               ? 0.5 * (1 + std::cos(std::numbers::pi * progress))
                               : 1 - progress;
  return config.lr * (config.min_lr_ratio + (1 - config.min_lr_ratio) * remaining);
}

}  // namespace smelt
