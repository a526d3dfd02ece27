// Pre-tokenization: text is cut into pieces, and merges never reach across a cut.
//
// Patterns see valid UTF-8 only. Text that is not valid is cut at the boundaries of its longest
// valid stretches first: each valid stretch is split as if it stood alone, each stretch of invalid
// bytes between them is one piece. So every byte string has one set of pieces, whose bytes in order
// are the text. (The tokenizers library never sees invalid bytes: replace_invalid_utf8 in utf8.h
// gives what it is given.)
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/common/tokenizer/regex.h"

namespace smelt {

/// What becomes of the matches of a pattern and of the gaps between them.
enum class SplitBehavior {
  isolated,              ///< both are pieces
  removed,               ///< matches vanish
  merged_with_previous,  ///< a match joins the gap before it
  merged_with_next,      ///< a match joins the gap after it
  contiguous             ///< neighbours of one kind are joined
};

/// One step: a split by a pattern, or a blank put in front of pieces that begin with none.
struct PreTokenizerStage {
  std::vector<Regex> pattern;  ///< one, or none for the blank
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< gaps count as matches, and the reverse
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStage> stages) : stages_(std::move(stages)) {}

  /// Whether the pieces together are the text.
  bool exact() const;

  /// Calls sink(std::string_view) for every piece of `text`, valid UTF-8, in order. None is empty.
  template <class Sink>
  void split(std::string_view text, RegexScratch& scratch, Sink&& sink) const {
    scratch.limit_for(text.size());
    if (!text.empty()) split_from(0, text, scratch, sink);
  }

 private:
  template <class Sink>
  void split_from(size_t number, std::string_view text, RegexScratch& scratch, Sink& sink) const {
    if (number == stages_.size()) return sink(text);
    const PreTokenizerStage& stage = stages_[number];
    if (stage.pattern.empty()) {
      if (text.front() == ' ') return split_from(number + 1, text, scratch, sink);
      const std::string longer = ' ' + std::string(text);
      return split_from(number + 1, longer, scratch, sink);
    }
    if (stage.behavior != SplitBehavior::isolated) {
      for (const auto& [begin, end] : pieces(stage, text, scratch))
        split_from(number + 1, text.substr(begin, end - begin), scratch, sink);
      return;
    }
    size_t done = 0, begin = 0, end = 0;
    while (done < text.size() && stage.pattern.front().find(text, done, scratch, begin, end)) {
      if (begin > done) split_from(number + 1, text.substr(done, begin - done), scratch, sink);
      split_from(number + 1, text.substr(begin, end - begin), scratch, sink);
      done = end;
    }
    if (done < text.size()) split_from(number + 1, text.substr(done), scratch, sink);
  }

  static std::vector<std::pair<size_t, size_t>> pieces(const PreTokenizerStage& stage,
                                                       std::string_view text,
                                                       RegexScratch& scratch);

  std::vector<PreTokenizerStage> stages_;
};

}  // namespace smelt
