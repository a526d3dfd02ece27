// JSON Lines files of a run: metrics.jsonl (one line per logged step) and endpoints.jsonl (one line
// per finished branch), and the memory of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <boost/json.hpp>

#include "apps/common/append_file.h"

namespace smelt {

/// Appends objects to a file, each as one whole line. Numbers that are not finite become null.
class MetricsWriter {
 public:
  /// @throws IoError as AppendFile does
  explicit MetricsWriter(const std::string& path) : file_(path) {}
  /// Writes one line. @throws RunError when the disk is full or the file is gone.
  void write(const boost::json::object& line);

 private:
  AppendFile file_;
};

/// The number, or null when it is NaN or infinite.
boost::json::value number_or_null(double value);
/// JSON text on one line, with every number that is not finite as null.
std::string json_line(const boost::json::value& value);

/// All lines of a file. A last line without its newline (cut off by a kill) is left out.
/// @throws IoError naming file and line when a line is not a JSON object or the file is missing.
std::vector<boost::json::object> read_jsonl(const std::string& path);

/// Keeps only the lines whose "step" is at most last_step, so that a resumed run logs each step
/// once; rewrites beside the file and renames. A missing file is left missing.
/// @param keep  later lines for which it returns true stay as well, e.g. those of finished branches
/// @return the number of lines dropped
int64_t truncate_metrics(const std::string& path, int64_t last_step,
                         const std::function<bool(const boost::json::object&)>& keep = {});

/// Appends one line to endpoints.jsonl.
void append_jsonl(const std::string& path, const boost::json::object& line);

/// Resident memory of this process in bytes, from /proc/self/status; 0 where there is none.
struct MemoryUse {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};
MemoryUse memory_use();

}  // namespace smelt
