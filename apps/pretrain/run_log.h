// What a run leaves for those who watch it: metrics.jsonl, TensorBoard event files, and a figure of
// its losses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <boost/json.hpp>

#include "apps/common/event_file.h"
#include "apps/common/figures.h"
#include "apps/common/metrics.h"
#include "apps/common/run_folder.h"

namespace smelt {

class RunLog {
 public:
  /// Opens metrics.jsonl for appending and takes over the losses that it holds.
  /// @param tensorboard  whether event files are written: the trunk's to tensorboard/trunk, those
  ///   of a decay branch to tensorboard/branch-TOKENS, since its steps come again in the trunk
  /// @param config  text of config.ini, shown in TensorBoard
  RunLog(const RunFolder& folder, bool tensorboard, const std::string& config);

  /// Writes a line of metrics.jsonl and its numbers as scalars: train/KEY, or
  /// valid/DOMAIN/KEY of a validation, and load/layer L visit V.
  void write(const boost::json::object& line);
  /// Draws the losses so far to loss.svg, and as an image for TensorBoard. What goes wrong is told
  /// once and ends nothing.
  void draw(int64_t step);

 private:
  EventFile& events_of(int64_t branch_tokens);
  void remember(const boost::json::object& line);

  RunFolder folder_;
  bool tensorboard_;
  std::string config_;
  MetricsWriter metrics_;
  std::map<int64_t, std::unique_ptr<EventFile>> events_;  // by tokens of the branch; 0: the trunk
  std::map<std::string, Series> losses_;                  // by name, over tokens
  int64_t branch_ = 0;                                    // of the last line
  bool can_draw_ = true;
};

}  // namespace smelt
