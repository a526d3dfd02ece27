// SHA-256 by the system's sha256sum: coreutils is wherever dpkg and apt are, and no library has to
// be linked for it.
#pragma once

#include <string>
#include <vector>

namespace smelt {

/// SHA-256 of each file as lower-case hex. @throws RunError with the program's own message.
std::vector<std::string> sha256_of_files(const std::vector<std::string>& paths);

}  // namespace smelt
