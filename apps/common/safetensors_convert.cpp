#include "apps/common/safetensors_convert.h"

#include <cstring>

namespace smelt::safetensors {
namespace {

/// A half as it stands in a file.
struct Half {
  uint16_t bits;
  operator float() const { return half_to_float(bits); }
};

template <typename From, typename To>
void convert_all(const char* from, To* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * int64_t(sizeof(From)), sizeof value);
    out[i] = To(acc_t<To>(value));
  }
}

}  // namespace

void convert(const FileDType& type, const void* from, DType to, void* out, int64_t count) {
  const char* bytes = static_cast<const char*>(from);
  dispatch_float(to, "convert", [&](auto tag) {
    using To = decltype(tag);
    To* values = static_cast<To*>(out);
    if (type.name == "F16") {
      convert_all<Half>(bytes, values, count);
    } else {
      dispatch_float(*type.dtype, "convert",
                     [&](auto source) { convert_all<decltype(source)>(bytes, values, count); });
    }
  });
}

}  // namespace smelt::safetensors
