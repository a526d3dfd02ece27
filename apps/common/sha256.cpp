#include "apps/common/sha256.h"

#include <sstream>

#include "apps/common/process.h"
#include "tensor/error.h"

namespace smelt {

std::vector<std::string> sha256_of_files(const std::vector<std::string>& paths) {
  if (paths.empty()) return {};
  std::vector<std::string> command{"sha256sum", "--"};
  command.insert(command.end(), paths.begin(), paths.end());
  const CommandResult result = run_command(command, "");
  SMELT_CHECK(RunError, result.exit_code == 0, "sha256sum: " << result.output);
  std::vector<std::string> hashes;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('\\')) line.erase(0, 1);  // marks an escaped file name
    if (line.size() > 64) hashes.push_back(line.substr(0, 64));
  }
  SMELT_CHECK(RunError, hashes.size() == paths.size(),
              "sha256sum: " << hashes.size() << " hashes for " << paths.size() << " files");
  return hashes;
}

}  // namespace smelt
