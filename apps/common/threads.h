// Whether a rank can use the cores that its threads need.
#pragma once

#include <string>

namespace smelt {

/// Cores this process may run on (its affinity mask); 0 where the system does not tell.
int usable_cores();

/// What to print when `threads` threads share fewer usable cores, naming the option that helps
/// (Open MPI binds one or two ranks to a single core each by default); empty when all is well.
/// ranks_on_node: processes of the run on this machine, `cores` the machine's.
std::string thread_warning(int threads, int usable, int ranks_on_node, int cores);

}  // namespace smelt
