// A folder that appears whole or not at all, for checkpoints and exports. It is filled under a
// temporary name beside the final one, synced, marked as complete and then renamed.
//
// The mark is the file "complete": {"files": {"<name>": <bytes>, ...}}. It also tells a folder
// that lost a file later, or that was copied only in part.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace smelt {

/// One process owns it; in a parallel save the others write into the path() that it tells them, and
/// commit() follows a barrier.
class AtomicFolder {
 public:
  /// Creates the folder ".tmp-<name>-<pid>" beside `final_path`, missing parents included. Throws
  /// ConfigError when final_path exists already, RunError when the folder cannot be made.
  explicit AtomicFolder(std::filesystem::path final_path);
  /// Removes the temporary folder unless commit() published it.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where to write the files; subfolders are allowed.
  const std::filesystem::path& path() const { return temporary_; }
  const std::filesystem::path& final_path() const { return final_path_; }
  /// Syncs every file and folder, writes the mark, renames to the final name and syncs the parent.
  /// Throws RunError naming the path; a final_path that came into being meanwhile is left alone.
  void commit();

 private:
  std::filesystem::path final_path_;
  std::filesystem::path temporary_;
  int lock_ = -1;  // held on the temporary folder while its owner lives
  bool committed_ = false;
};

/// Why a folder is not whole, in one line naming the file; empty when every file of its mark is
/// there with its size. Files that the mark does not name are ignored. Never throws for bad input.
std::string why_incomplete(const std::filesystem::path& folder);
inline bool is_complete(const std::filesystem::path& folder) {
  return why_incomplete(folder).empty();
}

/// Deletes temporary folders in `parent` whose owner has died; returns the deleted paths. Call it
/// on one process, before the first save.
std::vector<std::filesystem::path> remove_stale(const std::filesystem::path& parent);

}  // namespace smelt
