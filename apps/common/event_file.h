// TensorBoard event files: records of protobuf messages, each framed by its length and CRC-32C.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/common/append_file.h"

namespace smelt {

/// One event file, open for appending. A record is written whole, so TensorBoard can read along.
/// Steps of one tag should rise: TensorBoard drops what it has from a repeated step on, which is
/// what a resumed run wants.
class EventFile {
 public:
  /// Creates FOLDER (parents too) and a new file in it, named by time, host, process and a counter.
  /// @throws IoError
  explicit EventFile(const std::string& folder);

  const std::string& path() const { return file_.path(); }
  /// Numbers of one step, by tag ("train/loss"). @throws RunError when the disk is full.
  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);
  /// A PNG picture. @throws IoError when the bytes are no PNG, RunError.
  void image(int64_t step, const std::string& tag, std::string_view png);
  /// Markdown text. @throws RunError.
  void text(int64_t step, const std::string& tag, std::string_view markdown);

 private:
  AppendFile file_;
};

/// A record of an event file: length, its masked CRC, the data, their masked CRC.
std::string event_record(std::string_view data);

}  // namespace smelt
