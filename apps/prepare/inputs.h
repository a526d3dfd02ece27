// The input files that a user names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smelt {

struct InputFile {
  std::string path;      ///< "-": standard input
  int64_t bytes = -1;    ///< as stored; -1 where unknown
  int64_t modified = 0;  ///< time of the last change, 0 where unknown
};

/// The files that `paths` name, in their order: files as they are, folders with all files below
/// them sorted by name, hidden ones left out. "-" is standard input and must stand alone.
/// @throws IoError for what is not there, ConfigError for a folder without files.
std::vector<InputFile> find_inputs(const std::vector<std::string>& paths);

}  // namespace smelt
