// The entries of a byte-level vocabulary, by id and by text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace smelt {

/// Ids are below this: tables by id stay small whatever a file claims.
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 22;

class Vocabulary {
 public:
  /// Takes the entries of model.vocab, (spelling, id). A spelling made of the byte table's
  /// characters is a string of bytes; any other stands for itself and is out of reach of merges.
  /// @throws ConfigError, its message beginning with `where`: an id that is given twice or outside
  ///   [0, kMaxVocabulary), a single byte without an entry.
  Vocabulary(const std::vector<std::pair<std::string_view, int64_t>>& entries,
             const std::string& where);
  // Views into entries_ are keys.
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// Number of entries.
  int64_t entries() const { return count_; }
  /// One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  /// The id of a string of bytes, of an entry as the file spells it; -1: none.
  int32_t find_bytes(std::string_view bytes) const;
  int32_t find_spelling(std::string_view spelling) const;
  /// What `id` stands for; empty for an id without an entry.
  const std::string& bytes(int32_t id) const { return entries_[static_cast<size_t>(id)]; }
  /// Ids of the single bytes.
  const std::array<int32_t, 256>& byte_ids() const { return byte_ids_; }

 private:
  std::vector<std::string> entries_;
  std::unordered_map<std::string_view, int32_t> by_bytes_, by_literal_;
  std::array<int32_t, 256> byte_ids_{};
  int64_t count_ = 0;
};

}  // namespace smelt
