// safetensors files of any bytes: opening and reading either works or throws IoError.
#include <cstdint>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "apps/common/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace smelt;
  // The reader works on files; this one is in memory and goes with its descriptor.
  const int fd = memfd_create("fuzz.safetensors", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != ssize_t(size)) __builtin_trap();
  try {
    const SafetensorsFile file("/proc/self/fd/" + std::to_string(fd));
    for (const std::string& name : file.names()) {
      try {
        const Tensor tensor = file.read(name);
        if (tensor.numel() != numel_of(file.info(name).shape)) __builtin_trap();
        if (is_floating(tensor.dtype())) file.read_into(name, tensor.to(DType::bf16));
      } catch (const IoError&) {  // a dtype that we do not read
      }
    }
  } catch (const IoError&) {
  }
  close(fd);
  return 0;
}
