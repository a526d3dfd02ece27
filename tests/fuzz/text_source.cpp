// Any bytes as a file of text, plain or compressed, as JSON lines and cut at separators: an error
// with a message, or documents.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "apps/common/text_source.h"
#include "tensor/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("text", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  using smelt::TextFormat;
  for (const TextFormat format : {TextFormat::json_lines, TextFormat::plain}) {
    try {
      // A small file may unpack to gigabytes: the bound on a record must hold.
      const smelt::TextOptions options{
          .format = format, .separator = "\n\n", .max_record_bytes = 1 << 20};
      const auto summary = smelt::read_documents(path, options, [](const std::string& text, int64_t) {
        if (text.empty() || text.size() > size_t{1} << 20) std::abort();
      });
      if (summary.documents < 0) std::abort();
    } catch (const smelt::Error&) {
    }
  }
  close(fd);
  return 0;
}
