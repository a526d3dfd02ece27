#include "dist/environment.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>
#include <thread>

#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include "dist/group.h"
#include "dist/mpi_error.h"
#include "tensor/error.h"

namespace smelt::dist {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  SMELT_CHECK(CommError, false, call << " failed: " << text);
}

namespace {

bool mpi_runs() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

struct RankOfSize {
  int rank = 0;
  int size = 1;
};

RankOfSize place_in_world() {
  RankOfSize place;
  if (mpi_runs()) {
    MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &place.size);
  }
  return place;
}

using CoreMask = std::array<uint64_t, CPU_SETSIZE / 64>;

CoreMask affinity_mask() {
  CoreMask mask{};
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    // More cores than the set can name: such a machine is not pinned by a mask of this size.
    const long cores = std::clamp(sysconf(_SC_NPROCESSORS_ONLN), 1L, long(CPU_SETSIZE));
    for (long core = 0; core < cores; ++core) CPU_SET(size_t(core), &set);
  }
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) mask[core / 64] |= uint64_t(1) << (core % 64);
  }
  return mask;
}

int count(const CoreMask& mask) {
  int cores = 0;
  for (const uint64_t word : mask) cores += std::popcount(word);
  return cores;
}

}  // namespace

Environment::Environment(int& argc, char**& argv)
    : exceptions_at_start_(std::uncaught_exceptions()) {
  int initialized = 0;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  SMELT_CHECK(CommError, !initialized, "Environment: MPI was initialised before; make one only");
  // Compute threads never communicate, so the cheapest level that allows them is enough.
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  SMELT_CHECK(CommError, provided >= MPI_THREAD_FUNNELED,
              "Environment: this MPI does not allow threads beside the one that communicates");
}

Environment::~Environment() {
  if (std::uncaught_exceptions() > exceptions_at_start_ && place_in_world().size > 1) {
    fail("ended by an exception that left main", 1);
  }
  if (mpi_runs()) MPI_Finalize();
}

void abort(int code) {
  std::fflush(nullptr);
  const int exit_code = std::clamp(code, 1, 255);
  if (place_in_world().size > 1) MPI_Abort(MPI_COMM_WORLD, exit_code);
  // Alone, or MPI_Abort came back: leave without destructors, which could wait for other ranks.
  std::_Exit(exit_code);
}

void fail(const std::string& message, int code) {
  const RankOfSize place = place_in_world();
  // Measured: Open MPI 4.1 ends the other ranks of a node within 0.2 s; the rest is for loaded
  // nodes.
  if (place.rank > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(800 + 200 * place.rank, 5000)));
  }
  std::ostringstream line;
  line << "error: ";
  if (place.size > 1) line << "rank " << place.rank << " of " << place.size << ": ";
  line << message << "\n";
  std::fflush(stdout);
  std::fputs(line.str().c_str(), stderr);
  abort(code);
}

int CoreShare::threads_per_rank() const {
  return std::max(1, std::min(cores, node_cores / std::max(1, ranks_on_node)));
}

CoreShare core_share(const Group& group) {
  CoreMask mask = affinity_mask();
  CoreShare share;
  share.cores = std::max(1, count(mask));
  share.online_cores = std::max(share.cores, int(sysconf(_SC_NPROCESSORS_ONLN)));
  const char* bound = std::getenv("OMPI_MCA_orte_bound_at_launch");
  share.bound = bound != nullptr && std::strcmp(bound, "1") == 0;
  if (group.size() > 1) {
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(MPI_Comm_f2c(group.handle()), MPI_COMM_TYPE_SHARED, 0,
                                  MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
    check_mpi(MPI_Comm_size(node, &share.ranks_on_node), "MPI_Comm_size");
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, mask.data(), int(mask.size()), MPI_UINT64_T, MPI_BOR, node),
        "MPI_Allreduce");
    check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
  }
  share.node_cores = std::max(1, count(mask));
  return share;
}

std::string binding_warning(int threads, const CoreShare& share) {
  std::ostringstream text;
  if (threads > share.cores) {
    text << threads << " threads per rank on " << share.cores
         << (share.cores == 1 ? " core" : " cores");
    if (share.bound) {
      text << ": mpirun has pinned this rank; add --bind-to none to the mpirun line";
    } else {
      text << ": lower OMP_NUM_THREADS to " << share.threads_per_rank();
    }
  } else if (int64_t(threads) * share.ranks_on_node > share.node_cores) {
    text << share.ranks_on_node << " ranks x " << threads << " threads on " << share.node_cores
         << (share.node_cores == 1 ? " core" : " cores") << " of this node: ";
    if (share.ranks_on_node > share.node_cores) {
      text << "start fewer ranks and set OMP_NUM_THREADS=1";
    } else {
      text << "set OMP_NUM_THREADS=" << share.threads_per_rank();
    }
  } else if (share.bound && share.node_cores < share.online_cores) {
    text << "the ranks on this node use " << share.node_cores << " of its " << share.online_cores
         << " cores: mpirun has pinned them; add --bind-to none to the mpirun line";
  }
  return text.str();
}

}  // namespace smelt::dist
