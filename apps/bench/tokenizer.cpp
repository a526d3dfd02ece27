// smelt-bench tokenizer: training of vocabularies and encoding, in bytes of text per second.
#include <cmath>
#include <cstdio>

#include <boost/json.hpp>

#include "apps/bench/measure.h"
#include "apps/common/metrics.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/common/tokenizer/trainer.h"
#include "tensor/error.h"
#include "tensor/rng.h"

namespace smelt {
namespace {

namespace json = boost::json;

/// Made of syllables, words drawn as often as in a language (Zipf's law), with the punctuation of
/// prose or of code. The cache of pieces makes repetition cheap, so texts of --text are the better
/// measure.
class GeneratedText {
 public:
  GeneratedText() {
    const char* kOnsets[] = {"b",  "d", "st", "k", "l",  "m", "n",
                             "pr", "r", "s",  "t", "th", "v", "w"};
    const char* kRests[] = {"a", "e", "i", "o", "u", "er", "en", "al", "ing", "is", "on", "ou"};
    for (size_t word = 0; word < kWords; ++word) {
      std::string text;
      for (uint64_t syllables = 1 + draw(3); syllables > 0; --syllables)
        text += std::string(kOnsets[draw(std::size(kOnsets))]) + kRests[draw(std::size(kRests))];
      words_.push_back(text);
    }
  }

  std::string prose(size_t bytes) {
    std::string text;
    while (text.size() < bytes) {
      std::string sentence = word();
      sentence[0] = char(sentence[0] - 'a' + 'A');
      for (uint64_t left = 4 + draw(16); left > 0; --left)
        sentence += (draw(9) == 0 ? ", " : " ") + word();
      text += sentence + (draw(6) == 0 ? ".\n\n" : ". ");
    }
    return text;
  }

  std::string code(size_t bytes) {
    std::string text;
    while (text.size() < bytes) {
      text += "int " + word() + "_" + word() + "(const " + word() + "& " + word() + ") {\n";
      for (uint64_t lines = 2 + draw(8); lines > 0; --lines)
        text += "  " + word() + "[" + std::to_string(draw(1000)) + "] += " + word() + "." + word() +
                "(" + word() + " * 0x" + std::to_string(draw(100)) + ");  // " + word() + "\n";
      text += "}\n\n";
    }
    return text;
  }

 private:
  static constexpr size_t kWords = 60000;

  uint64_t draw(uint64_t below) { return random_.below(drawn_++, below); }
  const std::string& word() {
    // A uniform exponent gives rank r the weight 1 / r.
    const double u = double(draw(1 << 24)) / double(1 << 24);
    return words_[size_t(std::pow(double(kWords), u)) - 1];
  }

  Random random_{1, "bench/text"};
  uint64_t drawn_ = 0;
  std::vector<std::string> words_;
};

struct Text {
  std::string name, text;
};

std::vector<Text> texts_of(const Arguments& arguments) {
  std::vector<Text> texts;
  for (const std::string& path : arguments.values("text")) {
    texts.push_back({path.substr(path.find_last_of('/') + 1), read_text_file(path)});
    SMELT_CHECK(IoError, !texts.back().text.empty(), path << ": no text in it");
  }
  if (texts.empty()) {
    GeneratedText generated;
    constexpr size_t kBytes = 8 << 20;
    texts.push_back({"prose", generated.prose(kBytes)});
    texts.push_back({"code", generated.code(kBytes)});
  }
  return texts;
}

/// Documents of some 16 KiB: encode is called for each.
std::vector<std::string_view> documents_of(const std::string& text) {
  constexpr size_t kBytes = 16384;
  std::vector<std::string_view> documents;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', std::min(at + kBytes, text.size()));
    end = end == std::string::npos ? text.size() : end + 1;
    documents.push_back(std::string_view(text).substr(at, end - at));
    at = end;
  }
  return documents;
}

}  // namespace

OptionTable tokenizer_options() {
  OptionTable options("bench tokenizer",
                      "Trains a vocabulary of each style on the texts and encodes them with it, on "
                      "one core; training counts on all cores.");
  options.list("text", "FILE",
               "texts to take instead of generated ones; each is measured by itself");
  options.integer("vocab-size", 32768, 512, 1 << 20, "ids", "size of the vocabularies");
  options.text("out", "", "FILE", "also write the JSON document to this file");
  return options;
}

int run_tokenizer(const Arguments& arguments) {
  std::FILE* out = table_stream(arguments);
  const std::vector<Text> texts = texts_of(arguments);
  json::array results;
  std::fprintf(out, "%-8s %-24s %10s %14s %14s %10s\n", "style", "text", "bytes", "training/s",
               "encoding/s", "bytes/id");
  for (const char* style : {"gpt2", "llama3", "qwen"}) {
    BpeTrainerOptions options;
    options.style = tokenizer_style(style);
    options.vocab_size = arguments.integer("vocab-size");
    std::unique_ptr<Tokenizer> tokenizer;
    int64_t bytes = 0;
    const double training = seconds_of([&] {
      BpeTrainer trainer(options);
      for (const Text& text : texts)
        for (const std::string_view document : documents_of(text.text)) trainer.add(document);
      bytes = trainer.bytes();
      tokenizer = trainer.train();
    });
    for (const Text& text : texts) {
      const auto documents = documents_of(text.text);
      size_t ids = 0;
      const double seconds = best_of(3, [&] {
        ids = 0;
        for (const std::string_view document : documents) ids += tokenizer->encode(document).size();
      });
      const auto size = double(text.text.size());
      std::fprintf(out, "%-8s %-24.24s %10s %12s/s %12s/s %10.3f\n", style, text.name.c_str(),
                   human_bytes(size).c_str(), human_bytes(double(bytes) / training).c_str(),
                   human_bytes(size / seconds).c_str(), size / double(ids));
      std::fflush(out);
      results.push_back({{"style", style},
                         {"text", text.name},
                         {"bytes", text.text.size()},
                         {"vocab_size", tokenizer->vocab_size()},
                         {"training_bytes_per_second", double(bytes) / training},
                         {"encoding_bytes_per_second_per_core", size / seconds},
                         {"bytes_per_id", size / double(ids)}});
    }
  }
  finish(arguments, {{"tokenizer", results}});
  return 0;
}

}  // namespace smelt
