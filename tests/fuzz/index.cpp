// model.safetensors.index.json of any bytes: parsed, with plain file names only, or IoError.
#include <cstdint>

#include "apps/common/safetensors_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace smelt;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const auto& [name, file] : safetensors::parse_index(text, "index")) {
      const bool plain = !file.empty() && file.find('/') == std::string::npos && file[0] != '.';
      if (!plain || safetensors::name_fault(name) != nullptr) __builtin_trap();
    }
  } catch (const IoError&) {
  }
  return 0;
}
