#include "apps/common/threads.h"

#include <sched.h>

namespace smelt {

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

std::string thread_warning(int threads, int usable, int ranks_on_node, int cores) {
  if (usable > 0 && usable < threads)
    return std::to_string(threads) + " threads share " + std::to_string(usable) +
           " usable core(s); start mpirun with --bind-to none, or set OMP_NUM_THREADS=" +
           std::to_string(usable);
  if (cores > 0 && ranks_on_node * threads > cores)
    return std::to_string(ranks_on_node) + " ranks x " + std::to_string(threads) +
           " threads exceed the " + std::to_string(cores) +
           " cores of this machine; set OMP_NUM_THREADS=" +
           std::to_string(cores > ranks_on_node ? cores / ranks_on_node : 1);
  return "";
}

}  // namespace smelt
