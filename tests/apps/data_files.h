// Scratch folders and small files for the tests of the data side.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <stdlib.h>

#include "apps/common/token_file.h"

namespace smelt::testing {

/// A folder that goes with its object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "smelt-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string path(const std::string& name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

using Documents = std::vector<std::vector<int32_t>>;

inline void write_tokens(const std::string& prefix, const Documents& documents,
                         int64_t vocab_size = 257) {
  TokenFileWriter writer(prefix, vocab_size);
  for (const auto& document : documents) writer.append(document);
  writer.finish();
}

/// One document 0, 1, ... count - 1.
inline Documents counting(int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = i;
  return {ids};
}

/// The parts joined. (A literal + a temporary string trips a false -Wrestrict warning of GCC 12.)
inline std::string join(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

/// For BOOST_CHECK_EXCEPTION: whether the message holds `part`.
inline std::function<bool(const std::exception&)> says(std::string part) {
  return [part = std::move(part)](const std::exception& e) {
    const bool found = std::string_view(e.what()).find(part) != std::string_view::npos;
    if (!found) BOOST_TEST_MESSAGE("message was: " << e.what());
    return found;
  };
}

}  // namespace smelt::testing
