// Any bytes as a pattern of a pre-tokenizer and a text, separated by the first NUL: a refusal, a
// limit that is exceeded, or pieces that are the text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "apps/common/tokenizer/pre_tokenizer.h"
#include "apps/common/tokenizer/utf8.h"
#include "tensor/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  if (cut == std::string::npos) return 0;
  const std::string pattern = smelt::replace_invalid_utf8(input.substr(0, cut));
  const std::string text = smelt::replace_invalid_utf8(input.substr(cut + 1, 64));
  try {
    for (const auto behavior :
         {smelt::SplitBehavior::isolated, smelt::SplitBehavior::merged_with_next,
          smelt::SplitBehavior::contiguous}) {
      std::vector<smelt::PreTokenizerStage> stages(1);
      stages[0].pattern.push_back(smelt::Regex::pattern(pattern, "pattern"));
      stages[0].behavior = behavior;
      const smelt::PreTokenizer pre_tokenizer(std::move(stages));
      smelt::RegexScratch scratch;
      std::string pieces;
      pre_tokenizer.split(text, scratch, [&](std::string_view piece) {
        if (piece.empty()) std::abort();
        pieces += piece;
      });
      if (pieces != text) std::abort();
    }
  } catch (const smelt::Error&) {
  }
  return 0;
}
