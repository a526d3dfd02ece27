#include "apps/common/tokenizer/pre_tokenizer.h"

#include <algorithm>

namespace smelt {
namespace {

struct Part {
  size_t begin, end;
  bool match;
};

using Pieces = std::vector<std::pair<size_t, size_t>>;

// A match joins its neighbour unless that neighbour has just been a match itself. `parts` come in
// text order for the previous neighbour, reversed for the next one.
template <class Join>
Pieces joined(const std::vector<Part>& parts, Join join) {
  Pieces pieces;
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.match && !after_match && !pieces.empty()) {
      join(pieces.back(), part);
    } else {
      pieces.emplace_back(part.begin, part.end);
    }
    after_match = part.match;
  }
  return pieces;
}

}  // namespace

bool PreTokenizer::exact() const {
  return std::all_of(stages_.begin(), stages_.end(), [](const PreTokenizerStage& stage) {
    return !stage.pattern.empty() && stage.behavior != SplitBehavior::removed;
  });
}

Pieces PreTokenizer::pieces(const PreTokenizerStage& stage, std::string_view text,
                            RegexScratch& scratch) {
  std::vector<Part> parts;
  const auto add = [&](size_t begin, size_t end, bool match) {
    if (begin < end) parts.push_back({begin, end, match != stage.invert});
  };
  size_t done = 0, begin = 0, end = 0;
  while (done < text.size() && stage.pattern.front().find(text, done, scratch, begin, end)) {
    add(done, begin, false);
    add(begin, end, true);
    done = end;
  }
  add(done, text.size(), false);

  Pieces pieces;
  switch (stage.behavior) {
    case SplitBehavior::isolated:
      for (const Part& part : parts) pieces.emplace_back(part.begin, part.end);
      break;
    case SplitBehavior::removed:
      for (const Part& part : parts)
        if (!part.match) pieces.emplace_back(part.begin, part.end);
      break;
    case SplitBehavior::contiguous:
      for (size_t i = 0; i < parts.size(); ++i) {
        if (i > 0 && parts[i].match == parts[i - 1].match) {
          pieces.back().second = parts[i].end;
        } else {
          pieces.emplace_back(parts[i].begin, parts[i].end);
        }
      }
      break;
    case SplitBehavior::merged_with_previous:
      pieces = joined(parts, [](auto& piece, const Part& part) { piece.second = part.end; });
      break;
    case SplitBehavior::merged_with_next:
      std::reverse(parts.begin(), parts.end());
      pieces = joined(parts, [](auto& piece, const Part& part) { piece.first = part.begin; });
      std::reverse(pieces.begin(), pieces.end());
      break;
  }
  return pieces;
}

}  // namespace smelt
