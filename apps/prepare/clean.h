// From extracted text to training pieces: normalising, filters, cutting, de-duplication, and the
// train / valid / test split.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <boost/uuid/uuid.hpp>

#include "apps/prepare/html_text.h"

namespace smelt {

enum class Split { train, valid, test };
inline constexpr std::array<std::string_view, 3> kSplitNames{"train", "valid", "test"};

/// The split of a piece: a hash of its id only, so that it is the same in every corpus size.
Split split_of(std::string_view id);

/// A hash equal for equal bytes (SHA-1 cut to 122 bits).
boost::uuids::uuid content_hash(std::string_view bytes);

/// Line ends to LF, terminal escapes, control characters and trailing blanks out, at most two empty
/// lines in a row, one line feed at the end.
std::string normalise(std::string_view text);

/// Cuts `text` into parts of at most `limit` bytes: after an empty line in the second half, else
/// after a line, else between two characters.
std::vector<std::string_view> cut_pieces(std::string_view text, size_t limit);

/// What the filters do, by extraction method.
struct CleanRules {
  size_t piece_limit = 131072;    ///< longer documents are cut
  bool limit_line_length = true;  ///< drop documents with a mean line above 1000 bytes
};

struct Piece {
  std::string id;  ///< path inside the package, with #NNNN if the document was cut
  std::string text;
  boost::uuids::uuid hash{};
};

struct CleanResult {
  std::vector<Piece> pieces;
  int64_t documents = 0, bytes = 0;  ///< that passed, before cutting
};

/// Filters and cuts the documents of one package.
CleanResult clean(std::vector<Document> documents, const CleanRules& rules);

}  // namespace smelt
