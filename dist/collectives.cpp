#include "dist/collectives.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <mpi.h>

#include "dist/exchange.h"
#include "dist/mpi_error.h"
#include "tensor/error.h"
#include "tensor/profiler.h"

namespace smelt::dist {

namespace {

MPI_Comm comm_of(const Group& group) { return MPI_Comm_f2c(group.handle()); }

void check_in_place(const char* op, const Tensor& x) {
  check_defined(op, "tensor", x);
  SMELT_CHECK(DeviceError, x.device().is_cpu(),
              op << ": tensor must be on the CPU, it is on " << x.device());
  SMELT_CHECK(ShapeError, x.is_contiguous(),
              op << ": tensor " << to_string(x.shape()) << " must be contiguous");
}

void check_summable(const char* op, const Tensor& x) {
  SMELT_CHECK(DTypeError, x.dtype() != DType::bf16,
              op << ": bf16 is not summed over ranks; convert to f32 first");
}

void check_rank(const char* op, int rank, const Group& group) {
  SMELT_CHECK(CommError, rank >= 0 && rank < group.size(),
              op << ": rank " << rank << " must be in 0.." << group.size() - 1);
}

void check_peer(const char* op, int rank, const Group& group) {
  check_rank(op, rank, group);
  SMELT_CHECK(CommError, rank != group.rank(), op << ": rank " << rank << " is this rank itself");
}

/// n elements cut into `parts` consecutive parts whose sizes differ by at most one.
std::vector<int64_t> even_bounds(int64_t n, int parts) {
  std::vector<int64_t> bounds{0};
  for (int p = 0; p < parts; ++p) bounds.push_back(bounds.back() + n / parts + (p < n % parts));
  return bounds;
}

std::vector<int64_t> equal_bounds(const char* op, const Tensor& x, const Group& group) {
  SMELT_CHECK(
      ShapeError, x.numel() % group.size() == 0,
      op << ": " << x.numel() << " elements do not divide into " << group.size() << " equal parts");
  return even_bounds(x.numel(), group.size());
}

void broadcast_bytes(void* data, int64_t count, DType dtype, int root, const Group& group) {
  // Moved as bytes; the limit counts elements, so that it means the same for every collective.
  const ChunkPlan plan(count, group.chunk_elements());
  for (int64_t c = 0; c < plan.size(); ++c) {
    const int64_t bytes = plan.length(c) * size_of(dtype);
    check_mpi(MPI_Bcast(static_cast<char*>(data) + plan.begin(c) * size_of(dtype),
                        checked_int(bytes, "bytes to broadcast"), MPI_BYTE, root, comm_of(group)),
              "MPI_Bcast");
  }
}

/// Values of all ranks; every scalar reduction is made of this, in rank order.
template <typename T>
std::vector<T> gather_scalars(T x, const Group& group) {
  std::vector<T> all(size_t(group.size()), x);
  if (group.size() > 1) {
    check_mpi(MPI_Allgather(&x, int(sizeof(T)), MPI_BYTE, all.data(), int(sizeof(T)), MPI_BYTE,
                            comm_of(group)),
              "MPI_Allgather");
  }
  return all;
}

template <typename T>
T sum_scalars(T x, const Group& group) {
  const std::vector<T> all = gather_scalars(x, group);
  return std::accumulate(all.begin() + 1, all.end(), all.front());
}

/// Small tensors: one message of everything to everybody is faster than two rounds of parts. The
/// order of the sum is the same, so the bits are too.
template <typename T>
void all_reduce_small(const Tensor& x, const Group& group) {
  const auto n = size_t(x.numel());
  const int bytes = checked_int(x.bytes(), "bytes to gather");
  std::vector<T> all(n * size_t(group.size()));
  T* out = x.data<T>();
  check_mpi(MPI_Allgather(out, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, comm_of(group)),
            "MPI_Allgather");
  std::copy_n(all.begin(), n, out);
  for (size_t r = 1; r < size_t(group.size()); ++r) {
    for (size_t i = 0; i < n; ++i) out[i] = T(out[i] + all[r * n + i]);
  }
}

}  // namespace

void all_reduce_sum_(const Tensor& x, const Group& group) {
  check_in_place("all_reduce_sum_", x);
  check_summable("all_reduce_sum_", x);
  if (group.size() == 1 || x.numel() == 0) return;
  constexpr int64_t kSmall = 1024;
  if (x.numel() <= std::min(kSmall, group.chunk_elements())) {
    dispatch_any(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      if constexpr (!std::is_same_v<T, bf16>) all_reduce_small<T>(x, group);
    });
    return;
  }
  const std::vector<int64_t> bounds = even_bounds(x.numel(), group.size());
  PartReduction(x, bounds, group).wait();
  Exchange exchange(group);
  post_part_gather(x, bounds, group, exchange);
  exchange.wait();
}

double all_reduce_sum(double x, const Group& group) { return sum_scalars(x, group); }
int64_t all_reduce_sum(int64_t x, const Group& group) { return sum_scalars(x, group); }

double all_reduce_max(double x, const Group& group) {
  double result = -std::numeric_limits<double>::infinity();
  for (const double value : gather_scalars(x, group)) {
    if (std::isnan(value)) return value;
    result = std::max(result, value);
  }
  return result;
}

int64_t all_reduce_max(int64_t x, const Group& group) {
  const std::vector<int64_t> all = gather_scalars(x, group);
  return *std::max_element(all.begin(), all.end());
}

double all_reduce_min(double x, const Group& group) { return -all_reduce_max(-x, group); }

int64_t all_reduce_min(int64_t x, const Group& group) {
  const std::vector<int64_t> all = gather_scalars(x, group);
  return *std::min_element(all.begin(), all.end());
}

std::vector<double> all_gather(double x, const Group& group) { return gather_scalars(x, group); }
std::vector<int64_t> all_gather(int64_t x, const Group& group) { return gather_scalars(x, group); }

bool any(bool failed, const Group& group) { return all_reduce_max(int64_t(failed), group) != 0; }

std::string first_error(const std::string& error, const Group& group) {
  const int64_t first =
      all_reduce_min(error.empty() ? int64_t(group.size()) : int64_t(group.rank()), group);
  return first == group.size() ? std::string() : broadcast(error, int(first), group);
}

void broadcast_(const Tensor& x, int root, const Group& group) {
  check_in_place("broadcast_", x);
  check_rank("broadcast_", root, group);
  if (group.size() == 1) return;
  broadcast_bytes(x.raw(), x.numel(), x.dtype(), root, group);
}

std::string broadcast(const std::string& text, int root, const Group& group) {
  check_rank("broadcast", root, group);
  if (group.size() == 1) return text;
  int64_t length = int64_t(text.size());
  broadcast_bytes(&length, 1, DType::i64, root, group);
  std::string result = group.rank() == root ? text : std::string(size_t(length), '\0');
  // A limit in elements of at most 8 bytes each: a byte counts as an element of a message here.
  const ChunkPlan plan(length, group.chunk_elements());
  for (int64_t c = 0; c < plan.size(); ++c) {
    check_mpi(
        MPI_Bcast(result.data() + plan.begin(c), plan.length(c), MPI_BYTE, root, comm_of(group)),
        "MPI_Bcast");
  }
  return result;
}

void reduce_scatter_(const Tensor& buffer, const Group& group) {
  check_in_place("reduce_scatter_", buffer);
  check_summable("reduce_scatter_", buffer);
  PartReduction(buffer, equal_bounds("reduce_scatter_", buffer, group), group).wait();
}

void all_gather_(const Tensor& buffer, const Group& group) {
  check_in_place("all_gather_", buffer);
  Exchange exchange(group);
  post_part_gather(buffer, equal_bounds("all_gather_", buffer, group), group, exchange);
  exchange.wait();
}

std::vector<int64_t> all_to_all_counts(const std::vector<int64_t>& send, const Group& group) {
  const auto size = int64_t(group.size());
  SMELT_CHECK(ShapeError, int64_t(send.size()) % size == 0,
              "all_to_all_counts: " << send.size() << " counts are not the same number for each of "
                                    << size << " ranks");
  if (size == 1) return send;
  std::vector<int64_t> received(send.size());
  const int each = checked_int(int64_t(send.size()) / size, "counts per rank");
  check_mpi(MPI_Alltoall(send.data(), each, MPI_INT64_T, received.data(), each, MPI_INT64_T,
                         comm_of(group)),
            "MPI_Alltoall");
  return received;
}

Tensor all_to_all_rows(const Tensor& rows, const std::vector<int64_t>& send_rows,
                       const std::vector<int64_t>& recv_rows, const Group& group) {
  constexpr const char* kOp = "all_to_all_rows";
  check_defined(kOp, "rows", rows);
  SMELT_CHECK(DeviceError, rows.device().is_cpu(),
              kOp << ": rows must be on the CPU, they are on " << rows.device());
  SMELT_CHECK(ShapeError, rows.rank() >= 1, kOp << ": rows must have a dimension of rows");
  const auto size = size_t(group.size());
  const auto rank = size_t(group.rank());
  SMELT_CHECK(ShapeError, send_rows.size() == size && recv_rows.size() == size,
              kOp << ": one count per rank (" << size << ") is needed, got " << send_rows.size()
                  << " to send and " << recv_rows.size() << " to receive");
  std::vector<int64_t> send_begin{0};
  std::vector<int64_t> recv_begin{0};
  for (size_t r = 0; r < size; ++r) {
    SMELT_CHECK(ShapeError, send_rows[r] >= 0 && recv_rows[r] >= 0,
                kOp << ": counts for rank " << r << " are negative (send " << send_rows[r]
                    << ", receive " << recv_rows[r] << ")");
    send_begin.push_back(send_begin.back() + send_rows[r]);
    recv_begin.push_back(recv_begin.back() + recv_rows[r]);
  }
  SMELT_CHECK(ShapeError, send_begin.back() == rows.dim(0),
              kOp << ": send_rows must add up to the rows of " << to_string(rows.shape())
                  << ", they add up to " << send_begin.back());
  SMELT_CHECK(ShapeError, send_rows[rank] == recv_rows[rank],
              kOp << ": rank " << rank << " sends itself " << send_rows[rank]
                  << " rows but expects " << recv_rows[rank]);

  const ProfiledOperation profiled("all_to_all_rows", double(rows.bytes()));
  Shape shape = rows.shape();
  shape[0] = recv_begin.back();
  const int64_t width =
      std::accumulate(shape.begin() + 1, shape.end(), int64_t(1), std::multiplies<>());
  const Tensor source = rows.contiguous();
  Tensor result = Tensor::empty(shape, rows.options());
  const int64_t row_bytes = width * size_of(rows.dtype());
  const char* from_data = static_cast<const char*>(source.raw());
  char* to_data = static_cast<char*>(result.raw());

  Exchange exchange(group);
  for (size_t step = 1; step < size; ++step) {
    const size_t from = (rank + size - step) % size;
    exchange.receive(to_data + recv_begin[from] * row_bytes, recv_rows[from] * width, rows.dtype(),
                     int(from));
  }
  for (size_t step = 1; step < size; ++step) {
    const size_t to = (rank + step) % size;
    exchange.send(from_data + send_begin[to] * row_bytes, send_rows[to] * width, rows.dtype(),
                  int(to));
  }
  if (const int64_t own = send_rows[rank] * row_bytes; own > 0) {
    std::memcpy(to_data + recv_begin[rank] * row_bytes, from_data + send_begin[rank] * row_bytes,
                size_t(own));
  }
  exchange.wait();
  return result;
}

namespace {

/// What goes ahead of a sent tensor: dtype, number of dimensions, dimensions.
constexpr int64_t kMaxRank = 8;
using Header = std::array<int64_t, size_t(kMaxRank) + 2>;

struct Announced {
  DType dtype;
  Shape shape;
};

Announced receive_header(int from, const Group& group) {
  Header header{};
  Exchange exchange(group);
  exchange.receive(header.data(), int64_t(header.size()), DType::i64, from);
  exchange.wait();
  SMELT_CHECK(
      CommError,
      header[0] >= 0 && header[0] <= int64_t(DType::i64) && header[1] >= 0 && header[1] <= kMaxRank,
      "recv: rank " << from << " did not announce a tensor");
  return {DType(header[0]), Shape(header.begin() + 2, header.begin() + 2 + header[1])};
}

void receive_data(const Tensor& x, int from, const Group& group) {
  Exchange exchange(group);
  exchange.receive(x.raw(), x.numel(), x.dtype(), from);
  exchange.wait();
}

}  // namespace

void send(const Tensor& x, int to, const Group& group) {
  check_defined("send", "tensor", x);
  check_peer("send", to, group);
  SMELT_CHECK(ShapeError, x.rank() <= kMaxRank,
              "send: " << to_string(x.shape()) << " has more than " << kMaxRank << " dimensions");
  const Tensor data = x.to(Device{}).contiguous();
  Header header{};
  header[0] = int64_t(x.dtype());
  header[1] = x.rank();
  std::copy(x.shape().begin(), x.shape().end(), header.begin() + 2);
  Exchange exchange(group);
  exchange.send(header.data(), int64_t(header.size()), DType::i64, to);
  exchange.send(data.raw(), data.numel(), data.dtype(), to);
  exchange.wait();
}

Tensor recv(int from, const Group& group) {
  check_peer("recv", from, group);
  const Announced announced = receive_header(from, group);
  Tensor x = Tensor::empty(announced.shape, {announced.dtype, {}});
  receive_data(x, from, group);
  return x;
}

void recv_(const Tensor& x, int from, const Group& group) {
  check_in_place("recv_", x);
  check_peer("recv_", from, group);
  const Announced announced = receive_header(from, group);
  // The data is taken off the wire first, so that the next receive does not meet it.
  const bool fits = announced.shape == x.shape() && announced.dtype == x.dtype();
  const Tensor target = fits ? x : Tensor::empty(announced.shape, {announced.dtype, {}});
  receive_data(target, from, group);
  SMELT_CHECK(DTypeError, announced.dtype == x.dtype(),
              "recv_: rank " << from << " sent " << announced.dtype << " where " << x.dtype()
                             << " is expected");
  SMELT_CHECK(ShapeError, fits,
              "recv_: rank " << from << " sent " << to_string(announced.shape) << " where "
                             << to_string(x.shape()) << " is expected");
}

void barrier(const Group& group) {
  if (group.size() > 1) check_mpi(MPI_Barrier(comm_of(group)), "MPI_Barrier");
}

}  // namespace smelt::dist
