// Where a tensor lives.
#pragma once

#include <iosfwd>

namespace smelt {

enum class DeviceKind : unsigned char { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool is_cpu() const { return kind == DeviceKind::cpu; }
  bool operator==(const Device&) const = default;
};

std::ostream& operator<<(std::ostream& out, Device device);

/// Whether this build has the CUDA kernels (CMake option SMELT_CUDA).
bool built_with_cuda();

}  // namespace smelt
