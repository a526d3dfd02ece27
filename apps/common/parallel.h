// The main function of programs that run under mpirun.
#pragma once

#include <functional>

#include "apps/common/cli.h"

namespace smelt {

/// run_program on every rank: message passing starts and ends with it, --help and --version answer
/// on rank 0 alone, and an error on one rank is told once and ends all ranks with its exit code.
int run_parallel(int argc, char** argv, const OptionTable& table,
                 const std::function<int(const Arguments&)>& body);

}  // namespace smelt
