#include "apps/common/tokenizer/vocabulary.h"

#include <algorithm>
#include <optional>

#include "apps/common/tokenizer/byte_level.h"
#include "tensor/error.h"

namespace smelt {

Vocabulary::Vocabulary(const std::vector<std::pair<std::string_view, int64_t>>& entries,
                       const std::string& where)
    : count_(static_cast<int64_t>(entries.size())) {
  int64_t largest = -1;
  for (const auto& [spelling, id] : entries) {
    SMELT_CHECK(ConfigError, id >= 0 && id < kMaxVocabulary,
                where << ": id " << id << " of '" << spelling << "' must be at least 0 and below "
                      << kMaxVocabulary);
    SMELT_CHECK(ConfigError, !spelling.empty(), where << ": the entry of id " << id << " is empty");
    largest = std::max(largest, id);
  }
  entries_.resize(static_cast<size_t>(largest + 1));
  by_bytes_.reserve(entries.size());
  for (const auto& [spelling, id] : entries) {
    std::string& entry = entries_[static_cast<size_t>(id)];
    SMELT_CHECK(
        ConfigError, entry.empty(),
        where << ": id " << id << " is given twice, the second time to '" << spelling << "'");
    std::optional<std::string> bytes = byte_level_bytes(spelling);
    auto& map = bytes ? by_bytes_ : by_literal_;
    entry = bytes ? std::move(*bytes) : std::string(spelling);
    map.emplace(entry, static_cast<int32_t>(id));
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = find_bytes(std::string(1, static_cast<char>(byte)));
    SMELT_CHECK(ConfigError, byte_ids_[byte] >= 0,
                where << ": no entry '" << byte_level_alphabet()[byte] << "' for byte " << byte
                      << "; a byte-level vocabulary has all 256");
  }
}

int32_t Vocabulary::find_bytes(std::string_view bytes) const {
  const auto found = by_bytes_.find(bytes);
  return found == by_bytes_.end() ? -1 : found->second;
}

int32_t Vocabulary::find_spelling(std::string_view spelling) const {
  if (const auto bytes = byte_level_bytes(spelling)) return find_bytes(*bytes);
  const auto found = by_literal_.find(spelling);
  return found == by_literal_.end() ? -1 : found->second;
}

}  // namespace smelt
