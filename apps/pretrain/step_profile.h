// A profile of a few training steps: --profile FILE.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/profile.h"

namespace smelt {

class StepProfile {
 public:
  /// Records `steps` steps after the first two of this process, which fill caches.
  /// @param file  the trace to write; empty: nothing is recorded
  /// @throws ConfigError when the file's folder does not exist
  StepProfile(std::string file, int64_t steps);

  void begin_step();
  void end_step(int64_t step);
  /// Writes the trace and prints the table to stderr, once; where the run ended before that, of
  /// what there is.
  void write();

 private:
  std::string file_;
  int64_t steps_;
  int64_t seen_ = 0;  // steps of this process
  std::unique_ptr<Profiler> profiler_;
  std::vector<ProfileSpan> spans_;
  int64_t begin_ = 0;
};

}  // namespace smelt
