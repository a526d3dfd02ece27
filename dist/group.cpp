#include "dist/group.h"

#include <sstream>
#include <utility>

#include <mpi.h>

#include "dist/mpi_error.h"
#include "tensor/error.h"

namespace smelt::dist {

/// A communicator that this process may free, or none for a group of one.
struct Group::State {
  State() = default;
  /// Takes ownership of `c`.
  explicit State(MPI_Comm c) {
    MPI_Comm_rank(c, &rank);
    MPI_Comm_size(c, &size);
    if (size > 1) {
      comm = c;
    } else {
      MPI_Comm_free(&c);
    }
  }
  ~State() {
    if (comm == MPI_COMM_NULL) return;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized) MPI_Comm_free(&comm);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
};

namespace {

std::string divisors(int n) {
  std::ostringstream list;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) list << (d > 1 ? ", " : "") << d;
  }
  return list.str();
}

}  // namespace

Group::Group() : state_(std::make_shared<State>()) {}
Group::Group(std::shared_ptr<const State> state) : state_(std::move(state)) {}

int Group::rank() const { return state_->rank; }
int Group::size() const { return state_->size; }
int Group::handle() const { return int(MPI_Comm_c2f(state_->comm)); }

Group Group::with_chunk_elements(int64_t elements) const {
  SMELT_CHECK(
      CommError, elements >= 1 && elements <= kDefaultChunkElements,
      "chunk limit " << elements << " must be in 1.." << kDefaultChunkElements << " elements");
  Group group(*this);
  group.chunk_elements_ = elements;
  return group;
}

Group Group::duplicate() const {
  if (size() == 1) return *this;
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(state_->comm, &copy), "MPI_Comm_dup");
  return Group(std::make_shared<const State>(copy)).with_chunk_elements(chunk_elements_);
}

Group Group::split(int color) const {
  SMELT_CHECK(CommError, color >= 0, "split: color " << color << " must not be negative");
  if (size() == 1) return *this;
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(state_->comm, color, rank(), &part), "MPI_Comm_split");
  return Group(std::make_shared<const State>(part)).with_chunk_elements(chunk_elements_);
}

World::World(int expert_parallel, int64_t chunk_elements) {
  int running = 0;
  int size = 1;
  check_mpi(MPI_Initialized(&running), "MPI_Initialized");
  if (running) check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  SMELT_CHECK(ConfigError, expert_parallel >= 1 && size % expert_parallel == 0,
              "dist.expert_parallel = " << expert_parallel << " must divide the number of ranks, "
                                        << size << " (allowed: " << divisors(size) << ")");
  if (size > 1) {
    // A copy of its own, so that other users of MPI in the process cannot interfere.
    MPI_Comm all = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all), "MPI_Comm_dup");
    world_ = Group(std::make_shared<const Group::State>(all));
  }
  world_ = world_.with_chunk_elements(chunk_elements);
  expert_parallel_ = world_.split(world_.rank() / expert_parallel);
  expert_data_ = world_.split(world_.rank() % expert_parallel);
}

}  // namespace smelt::dist
