// Learning-rate schedules. Steps are counted from 1; the last step of a decay reaches the minimum.
#pragma once

#include <cstdint>

namespace smelt {

/// wsd: warm-up, stable, linear decay over the last decay_steps (arXiv 2404.06395). cosine:
/// warm-up, then half a cosine down to the minimum. constant: warm-up, then the peak.
enum class Schedule { wsd, cosine, constant };

struct ScheduleConfig {
  Schedule schedule = Schedule::wsd;
  double lr = 1e-3;           // peak
  double min_lr_ratio = 0.1;  // minimum / peak
  int64_t warmup_steps = 0;   // step s <= warmup_steps has lr * s / warmup_steps; 0 is as 1: the
                              // first step is at the peak
  int64_t total_steps = 1;
  int64_t decay_steps = 0;  // of wsd
};

/// Learning rate of step 1 <= step; beyond total_steps the last value holds.
double learning_rate(const ScheduleConfig& config, int64_t step);

}  // namespace smelt
