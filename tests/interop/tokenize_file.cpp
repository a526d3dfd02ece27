// For tokenizer_compare.py, which holds our ids and vocabularies against those of another library.
//
//   tokenize_file encode TOKENIZER.json TEXTS IDS [specials]
//   tokenize_file train STYLE VOCAB_SIZE TEXTS DIR
//
// TEXTS and IDS hold a 32-bit little-endian length before each text (bytes) and each list (32-bit
// ids). Invalid UTF-8 is replaced as that library's callers do.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "apps/common/tokenizer/trainer.h"
#include "apps/common/tokenizer/utf8.h"
#include "tensor/error.h"

namespace {

std::vector<std::string> read_texts(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(in), {});
  std::vector<std::string> texts;
  for (size_t at = 0; at + 4 <= all.size();) {
    uint32_t bytes = 0;
    std::memcpy(&bytes, all.data() + at, 4);
    texts.push_back(all.substr(at + 4, bytes));
    at += 4 + bytes;
  }
  return texts;
}

int encode(const std::vector<std::string>& words) {
  const auto tokenizer = smelt::load_tokenizer(words[1]);
  const smelt::EncodeOptions options{words.size() > 4, words.size() > 4};
  std::ofstream out(words[3], std::ios::binary);
  for (const std::string& text : read_texts(words[2])) {
    const auto ids = tokenizer->encode(smelt::replace_invalid_utf8(text), options);
    const auto count = static_cast<uint32_t>(ids.size());
    out.write(reinterpret_cast<const char*>(&count), 4);
    out.write(reinterpret_cast<const char*>(ids.data()),
              static_cast<std::streamsize>(4 * ids.size()));
  }
  return out.flush() ? 0 : 1;
}

int train(const std::vector<std::string>& words) {
  smelt::BpeTrainerOptions options;
  options.style = smelt::tokenizer_style(words[1]);
  options.vocab_size = std::stoll(words[2]);
  smelt::BpeTrainer trainer(options);
  for (const std::string& text : read_texts(words[3]))
    trainer.add(smelt::replace_invalid_utf8(text));
  trainer.train()->save(words[4]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() >= 4 && words[0] == "encode") return encode(words);
    if (words.size() == 5 && words[0] == "train") return train(words);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tokenize_file: error: %s\n", e.what());
    return 2;
  }
  std::fprintf(stderr, "usage: tokenize_file encode|train ...\n");
  return 2;
}
