// Private to tensor/: how an operation reaches the kernel of its device.
//
// SMELT_KERNEL(name, parameters) declares kernels::cpu::name and kernels::cuda::name with the same
// parameters; SMELT_DISPATCH(device, name, arguments) calls one of them, seen by the Profiler. A
// CUDA build that lacks a body fails to link; a CPU build throws DeviceError. Dispatchers have
// checked everything: kernels trust that inputs are contiguous unless their comment says otherwise
// and outputs are allocated.
#pragma once

#include "tensor/profiler.h"
#include "tensor/tensor.h"

namespace smelt {
/// Bytes that an argument of a kernel holds: those of a tensor, or of the tensors in a result.
template <typename T>
double bytes_of(const T&) {
  return 0;
}
inline double bytes_of(const Tensor& x) { return x.defined() ? double(x.bytes()) : 0; }

/// Calls a kernel, seen by the Profiler.
template <typename Kernel, typename... Arguments>
void call_kernel(const char* name, Kernel* kernel, const Arguments&... arguments) {
  const bool profiling = Profiler::active() != nullptr;
  const ProfiledOperation profiled(name, profiling ? (bytes_of(arguments) + ...) : 0);
  kernel(arguments...);
}
}  // namespace smelt

#define SMELT_KERNEL(name, ...)    \
  namespace smelt::kernels::cpu {  \
  void name(__VA_ARGS__);          \
  }                                \
  namespace smelt::kernels::cuda { \
  void name(__VA_ARGS__);          \
  }

#ifdef SMELT_CUDA
#define SMELT_CUDA_CALL(call) call
#else
#define SMELT_CUDA_CALL(call) \
  throw DeviceError("this build has no CUDA kernels; configure with -DSMELT_CUDA=ON")
#endif

#define SMELT_DISPATCH(device, name, ...)                                    \
  do {                                                                       \
    if ((device).is_cpu()) {                                                 \
      call_kernel(#name, kernels::cpu::name, __VA_ARGS__);                   \
    } else {                                                                 \
      SMELT_CUDA_CALL(call_kernel(#name, kernels::cuda::name, __VA_ARGS__)); \
    }                                                                        \
  } while (false)

namespace smelt {
/// Below this many elements a loop is not worth waking the other threads.
constexpr int64_t kParallelGrain = 16384;
}  // namespace smelt
