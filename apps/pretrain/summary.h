// What a person wants to know at the start and at the end of a run, on one screen each.
#pragma once

#include <string>
#include <vector>

#include "apps/common/config.h"
#include "apps/common/dataset.h"
#include "apps/common/validation.h"
#include "dist/group.h"

namespace smelt {

/// Model, budgets at the data's mean context, layout with memory per rank, data, and the time that
/// the run will take if its products run at kUsualShare of `matrix_rate`.
/// @param matrix_rate  FLOP/s of one rank in the run's dtype
std::string start_summary(const RunConfig& config, const dist::World& world, int threads,
                          const BlendedDataset& data, int64_t first_step, double matrix_rate);

/// Share of the matrix rate that training steps reach on processors (docs/results.md).
constexpr double kUsualShare = 0.7;

struct RunOutcome {
  int64_t step = 0, tokens = 0, skipped_steps = 0;
  int64_t steps_here = 0;           // in this process: a resumed run has fewer
  double seconds = 0;               // in training steps, in this process
  double flops_per_second = 0;      // model FLOPs of all ranks, head included
  double matrix_rate = 0;           // of all ranks together
  int64_t peak_bytes = 0;           // of the rank that needed most
  std::vector<DomainLoss> valid{};  // of the last evaluation
  std::string checkpoint{};         // last saved; empty: none
};
/// Where the run stands, what it cost, what it reached, and where things are.
std::string end_summary(const RunConfig& config, const RunOutcome& outcome);

}  // namespace smelt
