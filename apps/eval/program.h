// smelt-eval between its command line and its output.
#pragma once

#include "apps/eval/options.h"

namespace smelt {

/// Evaluates what the options name and prints the result on rank 0. All ranks take part.
/// @return the exit code
int run_eval(const EvalOptions& options);

}  // namespace smelt
