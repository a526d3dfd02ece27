// Any bytes as a file of text, plain or compressed, as JSON lines and cut at separators: an error
// with a message, or documents.
#include "apps/common/text_source.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tensor/error.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const smelt::testing::MemoryFile file({reinterpret_cast<const char*>(data), size});
  using smelt::TextFormat;
  for (const TextFormat format : {TextFormat::json_lines, TextFormat::plain}) {
    try {
      // A small file may unpack to gigabytes: the bound on a record must hold.
      const smelt::TextOptions options{
          .format = format, .separator = "\n\n", .max_record_bytes = 1 << 20};
      const auto summary =
          smelt::read_documents(file.path(), options, [](const std::string& text, int64_t) {
            if (text.empty() || text.size() > size_t{1} << 20) std::abort();
          });
      if (summary.documents < 0) std::abort();
    } catch (const smelt::Error&) {
    }
  }
  return 0;
}
