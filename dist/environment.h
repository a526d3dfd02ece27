// Start and end of message passing in a process, how the processes of a node share its cores, and
// how a failure of one rank ends all of them. MPI itself is seen only by the .cpp files of dist/.
#pragma once

#include <string>

namespace smelt::dist {

class Group;

/// Owns message passing for the life of the process: make one at the top of main, before any Group.
/// A process that was not started by mpirun or srun is a world of one rank.
///
/// Only the thread that made it may communicate. If it is destroyed by an exception that leaves
/// main's scope, it ends all ranks, because finalising would wait for ranks that never come.
class Environment {
 public:
  /// Throws CommError when MPI cannot be initialised or was initialised before.
  Environment(int& argc, char**& argv);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  int exceptions_at_start_ = 0;
};

/// Ends all ranks at once with this exit code (1..255), whatever they are waiting for.
[[noreturn]] void abort(int code);

/// Prints one line "error: rank R of N: message" to stderr (without the rank in a world of one) and
/// ends all ranks with `code`. When several ranks fail for one reason, the lowest speaks: a higher
/// rank waits a moment before it prints and is normally ended before that moment is over.
[[noreturn]] void fail(const std::string& message, int code);

/// The cores that this process and its neighbours on the node may run on.
struct CoreShare {
  int cores = 1;          // in this process' affinity mask
  int ranks_on_node = 1;  // ranks of the group on this node
  int node_cores = 1;     // in the union of those ranks' masks
  int online_cores = 1;   // of the machine
  bool bound = false;     // mpirun pinned this process

  /// Threads for this rank so that the ranks of the node together do not exceed its cores.
  int threads_per_rank() const;
};

/// Collective over `group`.
CoreShare core_share(const Group& group);

/// What is wrong with running `threads` threads per rank on these cores, with the mpirun option or
/// setting that cures it; empty when nothing is wrong. Local.
std::string binding_warning(int threads, const CoreShare& share);

}  // namespace smelt::dist
