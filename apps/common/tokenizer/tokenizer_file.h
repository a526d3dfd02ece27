// tokenizer.json read and checked: what of it decides ids, in the form the parts of a tokenizer
// take. Whatever would change ids and is not implemented is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/tokenizer/added_tokens.h"
#include "apps/common/tokenizer/bpe.h"
#include "apps/common/tokenizer/pre_tokenizer.h"
#include "apps/common/tokenizer/vocabulary.h"

namespace smelt {

struct TokenizerFile {
  std::vector<AddedToken> added;
  bool nfc = false;  ///< normalise to NFC
  PreTokenizer pre_tokenizer;
  std::vector<int32_t> prefix, suffix;  ///< ids that the post-processor puts around a text
  std::unique_ptr<Vocabulary> vocabulary;
  std::unique_ptr<Bpe> bpe;  ///< refers to *vocabulary
  std::vector<std::string> notices;
};

/// A file may have 64 MiB; parsing it takes at most 1 GiB.
/// @param where  the file's name, the beginning of messages
/// @throws IoError if `text` is not JSON or too large; ConfigError naming key, value and what is
///   allowed if it describes a tokenizer that smelt does not implement or is inconsistent.
TokenizerFile read_tokenizer_file(std::string_view text, const std::string& where);

}  // namespace smelt
