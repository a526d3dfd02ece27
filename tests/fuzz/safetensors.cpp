// safetensors files of any bytes: opening and reading either works or throws IoError.
#include "apps/common/safetensors.h"

#include <cstdint>
#include <string>

#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace smelt;
  const testing::MemoryFile bytes({reinterpret_cast<const char*>(data), size});
  try {
    const SafetensorsFile file(bytes.path());
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
  return 0;
}
