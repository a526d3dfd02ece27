// Turning MPI's return codes into CommError. All communicators return errors instead of ending the
// process, so every call is wrapped: check_mpi(MPI_Barrier(c), "MPI_Barrier").
#pragma once

namespace smelt::dist {

/// Throws CommError with MPI's text and the name of the call unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace smelt::dist
