// Communication on Tensors and small values. All ranks of the group call each function in the same
// order with matching arguments; point-to-point calls pair up.
//
// Sums are formed in rank order on every rank, so their bits depend neither on the chunk limit nor
// on the algorithms of the MPI library, and every rank gets the same bits. Functions ending in _
// work in place on contiguous CPU tensors; bf16 can be moved but not summed (gradients are f32).
// Errors: ShapeError (not contiguous, parts or counts do not fit), DTypeError, DeviceError,
// CommError (MPI failed, or a message has not the length that this rank expects).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/group.h"
#include "tensor/tensor.h"

namespace smelt::dist {

/// x = sum of x over the ranks. f32, f64, i32, i64; same shape everywhere.
void all_reduce_sum_(const Tensor& x, const Group& group);
double all_reduce_sum(double x, const Group& group);
int64_t all_reduce_sum(int64_t x, const Group& group);
/// NaN on any rank gives NaN.
double all_reduce_max(double x, const Group& group);
int64_t all_reduce_max(int64_t x, const Group& group);
double all_reduce_min(double x, const Group& group);
int64_t all_reduce_min(int64_t x, const Group& group);
/// The value of every rank, by rank.
std::vector<double> all_gather(double x, const Group& group);
std::vector<int64_t> all_gather(int64_t x, const Group& group);

/// True on every rank if true on any: makes all ranks reach the same verdict before they go on.
bool any(bool failed, const Group& group);
/// The text of the lowest rank whose text is not empty, on every rank; empty if all are.
std::string first_error(const std::string& error, const Group& group);

/// x = x of rank `root`. Any dtype.
void broadcast_(const Tensor& x, int root, const Group& group);
/// The text of rank `root`, on every rank; what the others pass is ignored.
std::string broadcast(const std::string& text, int root, const Group& group);

/// `buffer` is size() equal parts one after the other. Afterwards part rank() holds the sum over
/// the ranks; the other parts are as before.
void reduce_scatter_(const Tensor& buffer, const Group& group);
/// Same layout: part rank() of every rank is copied to all ranks. Any dtype.
void all_gather_(const Tensor& buffer, const Group& group);

/// Counts for every rank, n each (send.size() = n * size(), those for rank 0 first); returns the n
/// counts that every rank has for this one, in rank order.
std::vector<int64_t> all_to_all_counts(const std::vector<int64_t>& send, const Group& group);

/// The token exchange: the first send_rows[0] rows go to rank 0, the next send_rows[1] to rank 1,
/// ...
/// @param rows       [N, ...] any dtype, N = sum of send_rows
/// @param send_rows  [size()] rows to each rank, zero allowed
/// @param recv_rows  [size()] rows from each rank, e.g. from all_to_all_counts
/// @return           [R, ...] the rows from rank 0, then from rank 1, ...; R = sum of recv_rows
/// The inverse exchange (backward) swaps send_rows and recv_rows.
Tensor all_to_all_rows(const Tensor& rows, const std::vector<int64_t>& send_rows,
                       const std::vector<int64_t>& recv_rows, const Group& group);

/// Sends x (any dtype, made contiguous) to another rank, with its shape; returns when x may change.
void send(const Tensor& x, int to, const Group& group);
/// The tensor that rank `from` sends.
Tensor recv(int from, const Group& group);
/// The same into `x`; throws ShapeError or DTypeError when the sent tensor differs.
void recv_(const Tensor& x, int from, const Group& group);

void barrier(const Group& group);

}  // namespace smelt::dist
