// What a profile looks like to people: a trace for chrome://tracing or Perfetto, and a table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/profiler.h"

namespace smelt {

/// A stretch of a profile with a name of its own, e.g. a training step.
struct ProfileSpan {
  std::string name;
  int64_t begin = 0, end = 0;  // nanoseconds, as in ProfileEvent
};

/// Writes the JSON of Chrome's trace event format with three rows: the spans, the parts of the
/// model (one slice for each run of events of one scope and direction) and the operations.
/// @throws RunError when the file cannot be written
void write_chrome_trace(const std::filesystem::path& path, const std::vector<ProfileEvent>& events,
                        const std::vector<ProfileSpan>& spans);

/// Of all executions of one operation.
struct OperationTotal {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;  // without the operations that it called
  double flops = 0, bytes = 0;
};
/// By falling time. What `elapsed` seconds hold beside operations comes as "(between operations)".
std::vector<OperationTotal> operation_totals(const std::vector<ProfileEvent>& events,
                                             double elapsed);

/// A line per operation: calls, time, share, FLOPs, rate, bytes, rate; below it the shares of
/// forward, backward and optimizer. At most 100 columns.
std::string profile_table(const std::vector<ProfileEvent>& events, double elapsed);

}  // namespace smelt
