// Runs a program as a user would and keeps what it said.
#pragma once

#include <cstdlib>
#include <string>

#include <sys/wait.h>

#include "tests/apps/data_files.h"

namespace smelt::testing {

struct Outcome {
  int code = 0;
  std::string out, err;
};

/// @param command  a line for the shell
inline Outcome run_command(const ScratchFolder& scratch, const std::string& command) {
  const std::string out = scratch.path("stdout"), err = scratch.path("stderr");
  const int status = std::system(join({command, " >", out, " 2>", err}).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

}  // namespace smelt::testing
