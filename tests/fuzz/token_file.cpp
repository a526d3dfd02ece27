// Any bytes as PREFIX.idx and PREFIX.bin: an error with a message, or a file whose documents can
// all be read. The first two bytes say how many of the rest are the index.
#include "apps/common/token_file.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/error.h"
#include "tests/apps/scratch_folder.h"
#include "tests/fuzz/memory_file.h"

namespace {

/// A file in memory under a name in a folder.
struct NamedFile : smelt::testing::MemoryFile {
  explicit NamedFile(const std::filesystem::path& name) {
    std::filesystem::create_symlink(path(), name);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const smelt::testing::ScratchFolder folder;
  static const NamedFile idx(folder / "x.idx"), bin(folder / "x.bin");
  const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t index = std::min<size_t>(data[0] + size_t{256} * data[1], rest.size());
  idx.write(rest.substr(0, index));
  bin.write(rest.substr(index));
  try {
    const smelt::TokenFile file(folder.path("x"));
    int64_t tokens = 0;
    for (int64_t d = 0; d < file.documents(); ++d) {
      if (file.document_begin(d) != tokens) std::abort();
      std::vector<int32_t> ids(static_cast<size_t>(file.document_length(d)));
      file.read(tokens, ids);
      tokens += file.document_length(d);
    }
    if (tokens != file.tokens()) std::abort();
    file.check_ids(300);
  } catch (const smelt::Error&) {
  }
  return 0;
}
