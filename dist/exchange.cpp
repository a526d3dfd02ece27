#include "dist/exchange.h"

#include <algorithm>
#include <array>
#include <utility>

#include <mpi.h>

#include "dist/mpi_error.h"
#include "tensor/error.h"

namespace smelt::dist {

namespace {

constexpr int kTag = 1;  // each group has messages of its own; order does the rest

/// Messages are moved as plain words of the element's size.
MPI_Datatype word_of(DType dtype) {
  switch (size_of(dtype)) {
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    default:
      return MPI_UINT64_T;
  }
}

/// out[i] = sources[0][i] + sources[1][i] + ... in that order. `out` may be one of the sources: a
/// block is summed aside before it is written.
template <typename T>
void sum_in_order(T* out, const std::vector<const T*>& sources, int64_t n) {
  constexpr int64_t kBlock = 2048;
  const int64_t blocks = (n + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) if (blocks > 16)
  for (int64_t block = 0; block < blocks; ++block) {
    std::array<T, kBlock> total;
    const int64_t begin = block * kBlock;
    const int64_t length = std::min(kBlock, n - begin);
    std::copy_n(sources[0] + begin, length, total.begin());
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* x = sources[s] + begin;
      for (int64_t i = 0; i < length; ++i) total[size_t(i)] += x[i];
    }
    std::copy_n(total.begin(), length, out + begin);
  }
}

char* at(const Tensor& x, int64_t element) {
  return static_cast<char*>(x.raw()) + element * size_of(x.dtype());
}

}  // namespace

struct Exchange::Requests {
  std::vector<MPI_Request> pending;
  std::vector<int> expected;  // elements to receive, or -1 for a send
  std::vector<MPI_Datatype> words;
  std::vector<MPI_Status> statuses;
};

Exchange::Exchange(const Group& group) : group_(group), requests_(std::make_unique<Requests>()) {}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

void Exchange::send(const void* data, int64_t count, DType dtype, int to) {
  const ChunkPlan plan(count, group_.chunk_elements());
  const MPI_Datatype word = word_of(dtype);
  for (int64_t c = 0; c < plan.size(); ++c) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(static_cast<const char*>(data) + plan.begin(c) * size_of(dtype),
                        plan.length(c), word, to, kTag, MPI_Comm_f2c(group_.handle()), &request),
              "MPI_Isend");
    requests_->pending.push_back(request);
    requests_->expected.push_back(-1);
    requests_->words.push_back(word);
  }
}

void Exchange::receive(void* data, int64_t count, DType dtype, int from) {
  const ChunkPlan plan(count, group_.chunk_elements());
  const MPI_Datatype word = word_of(dtype);
  for (int64_t c = 0; c < plan.size(); ++c) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(static_cast<char*>(data) + plan.begin(c) * size_of(dtype), plan.length(c),
                        word, from, kTag, MPI_Comm_f2c(group_.handle()), &request),
              "MPI_Irecv");
    requests_->pending.push_back(request);
    requests_->expected.push_back(plan.length(c));
    requests_->words.push_back(word);
  }
}

void Exchange::check_lengths() {
  for (size_t i = 0; i < requests_->statuses.size(); ++i) {
    if (requests_->expected[i] < 0) continue;
    int received = 0;
    check_mpi(MPI_Get_count(&requests_->statuses[i], requests_->words[i], &received),
              "MPI_Get_count");
    SMELT_CHECK(CommError, received == requests_->expected[i],
                "rank " << group_.rank() << " received " << received << " elements from rank "
                        << requests_->statuses[i].MPI_SOURCE << " where it expected "
                        << requests_->expected[i]);
  }
  *requests_ = Requests{};
}

bool Exchange::test() {
  if (requests_->pending.empty()) return true;
  requests_->statuses.resize(requests_->pending.size());
  int done = 0;
  check_mpi(MPI_Testall(checked_int(int64_t(requests_->pending.size()), "number of messages"),
                        requests_->pending.data(), &done, requests_->statuses.data()),
            "MPI_Testall");
  if (!done) return false;
  check_lengths();
  return true;
}

void Exchange::wait() {
  if (requests_->pending.empty()) return;
  requests_->statuses.resize(requests_->pending.size());
  check_mpi(MPI_Waitall(checked_int(int64_t(requests_->pending.size()), "number of messages"),
                        requests_->pending.data(), requests_->statuses.data()),
            "MPI_Waitall");
  check_lengths();
}

PartReduction::PartReduction(Tensor x, std::vector<int64_t> bounds, const Group& group)
    : x_(std::move(x)), bounds_(std::move(bounds)), group_(group), exchange_(group) {
  if (group_.size() == 1) {
    done_ = true;
  } else {
    post();
  }
}

void PartReduction::post() {
  const int size = group_.size();
  const int rank = group_.rank();
  const int64_t own = bounds_[size_t(rank) + 1] - bounds_[size_t(rank)];
  staging_ = Tensor::empty({size - 1, own}, {x_.dtype(), {}});
  // Each rank begins with its right neighbour, so that no rank is everybody's first target.
  for (int step = 1; step < size; ++step) {
    const int from = (rank + size - step) % size;
    exchange_.receive(at(staging_, (from - (from > rank)) * own), own, x_.dtype(), from);
  }
  for (int step = 1; step < size; ++step) {
    const auto to = size_t((rank + step) % size);
    exchange_.send(at(x_, bounds_[to]), bounds_[to + 1] - bounds_[to], x_.dtype(), int(to));
  }
}

void PartReduction::sum() {
  const auto rank = size_t(group_.rank());
  const int64_t own = bounds_[rank + 1] - bounds_[rank];
  dispatch_any(x_.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bf16>) {
      T* out = x_.data<T>() + bounds_[rank];
      std::vector<const T*> sources;
      for (int r = 0; r < group_.size(); ++r) {
        const bool is_own = r == group_.rank();
        sources.push_back(is_own ? out : staging_.data<T>() + (r - (r > group_.rank())) * own);
      }
      sum_in_order(out, sources, own);
    }
  });
  staging_ = Tensor();
  done_ = true;
}

bool PartReduction::test() {
  if (!done_ && exchange_.test()) sum();
  return done_;
}

void PartReduction::wait() {
  if (done_) return;
  exchange_.wait();
  sum();
}

void post_part_gather(const Tensor& x, const std::vector<int64_t>& bounds, const Group& group,
                      Exchange& exchange) {
  const int size = group.size();
  const auto rank = size_t(group.rank());
  for (int step = 1; step < size; ++step) {
    const auto from = size_t((group.rank() + size - step) % size);
    exchange.receive(at(x, bounds[from]), bounds[from + 1] - bounds[from], x.dtype(), int(from));
  }
  for (int step = 1; step < size; ++step) {
    const int to = (group.rank() + step) % size;
    exchange.send(at(x, bounds[rank]), bounds[rank + 1] - bounds[rank], x.dtype(), to);
  }
}

}  // namespace smelt::dist
