// Any bytes as tokenizer.json: an error with a message, or a tokenizer that encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "tensor/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  // Words, code, scripts, combining marks, specials, and bytes of the file itself, mostly not
  // UTF-8.
  std::string text =
      "It's the 1st caf\u00e9, cafe\u0301; \u4e2d\u6587 \u0939\u093f x_y += 0x1F;\r\n\t  "
      "<|endoftext|> <x>  \U0001f600\u180e\xC3";
  text += file.substr(file.size() / 2, 64);
  try {
    const smelt::BpeTokenizer tokenizer(file, "tokenizer.json");
    for (const bool specials : {false, true}) {
      const auto ids = tokenizer.encode(text, {specials, specials});
      const std::string decoded = tokenizer.decode(ids);  // throws for ids outside the vocabulary
      if (specials) continue;
      int64_t bytes = 0;
      for (const int32_t id : ids) {
        if (id == tokenizer.eod_id()) std::abort();
        bytes += tokenizer.id_bytes(id);
      }
      if (bytes != static_cast<int64_t>(decoded.size())) std::abort();
      if (tokenizer.exact() && decoded != text) std::abort();
    }
  } catch (const smelt::Error&) {
  }
  return 0;
}
