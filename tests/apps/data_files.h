// Token files and small helpers for the tests of the data side.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/token_file.h"
#include "tests/apps/scratch_folder.h"
#include "tests/testing.h"

namespace smelt::testing {

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

/// How often `part` stands in `text`.
inline size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace smelt::testing
