#include "apps/common/tokenizer/bpe_tokenizer.h"

#include <boost/json.hpp>

#include "apps/common/tokenizer/byte_level.h"
#include "apps/common/tokenizer/nfc.h"
#include "apps/common/tokenizer/utf8.h"
#include "tensor/error.h"

namespace smelt {
namespace {

constexpr const char* kEndNames[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                     "<eos>",         "<|eos|>",         "<|im_end|>"};

std::string byte_tokenizer_text() {
  namespace json = boost::json;
  json::object vocab;
  for (int id = 0; id < 256; ++id) vocab[byte_level_alphabet()[static_cast<size_t>(id)]] = id;
  const json::object eod{{"id", ByteTokenizer::kEod},
                         {"content", kEndNames[0]},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", true}};
  // use_regex = false: without merges, splitting into words could change nothing.
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  const json::object model{{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"continuing_subword_prefix", nullptr},
                           {"end_of_word_suffix", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"ignore_merges", false},
                           {"vocab", vocab},
                           {"merges", json::array{}}};
  return json::serialize(json::object{{"version", "1.0"},
                                      {"truncation", nullptr},
                                      {"padding", nullptr},
                                      {"added_tokens", json::array{eod}},
                                      {"normalizer", nullptr},
                                      {"pre_tokenizer", byte_level},
                                      {"post_processor", nullptr},
                                      {"decoder", byte_level},
                                      {"model", model}}) +
         '\n';
}

}  // namespace

struct BpeTokenizer::Scratch {
  RegexScratch regex;
  Bpe::Scratch bpe;
  std::string normal;
};

/// A scratch that no other call uses meanwhile.
class BpeTokenizer::Lease {
 public:
  explicit Lease(const BpeTokenizer& owner) : owner_(owner) {
    {
      const std::lock_guard lock(owner_.mutex_);
      if (!owner_.idle_.empty()) {
        scratch_ = std::move(owner_.idle_.back());
        owner_.idle_.pop_back();
      }
    }
    if (!scratch_) scratch_ = std::make_unique<Scratch>();
  }
  ~Lease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(scratch_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Scratch& operator*() { return *scratch_; }

 private:
  const BpeTokenizer& owner_;
  std::unique_ptr<Scratch> scratch_;
};

BpeTokenizer::BpeTokenizer(std::string text, const std::string& where, const SpecialNames& names,
                           const std::string& eod)
    : text_(std::move(text)), file_(read_tokenizer_file(text_, where)), names_(names) {
  const Vocabulary& vocabulary = *file_.vocabulary;
  int64_t size = vocabulary.size();
  for (const AddedToken& added : file_.added) size = std::max<int64_t>(size, added.id + 1);
  tokens_.resize(static_cast<size_t>(size));
  for (int64_t id = 0; id < vocabulary.size(); ++id)
    tokens_[static_cast<size_t>(id)].text = vocabulary.bytes(static_cast<int32_t>(id));
  exact_ = file_.pre_tokenizer.exact() && !file_.nfc;
  std::string normal;
  for (const AddedToken& added : file_.added) {
    tokens_[static_cast<size_t>(added.id)] = {added.content, added.special};
    exact_ = exact_ && (added.special || (!added.lstrip && !added.rstrip));
    if (added.normalized) {
      normalized_.add(added,
                      file_.nfc ? std::string(to_nfc(added.content, normal)) : added.content);
    } else {
      raw_.add(added, added.content);
    }
  }
  for (const auto* ids : {&file_.prefix, &file_.suffix})
    for (const int32_t id : *ids)
      SMELT_CHECK(ConfigError, id < size && !tokens_[static_cast<size_t>(id)].text.empty(),
                  where << ": post_processor: id " << id << " is no token");
  eod_id_ = find_eod(where, eod);
  names_.eos = token(eod_id_).text;
  if (names_.bos.empty() && !file_.prefix.empty()) names_.bos = token(file_.prefix.front()).text;
}

BpeTokenizer::~BpeTokenizer() = default;

int32_t BpeTokenizer::special_id(std::string_view name) const {
  for (const AddedToken& added : file_.added)
    if (added.special && added.content == name) return added.id;
  return -1;
}

int32_t BpeTokenizer::find_eod(const std::string& where, const std::string& eod) const {
  const std::string& asked = eod.empty() ? names_.eos : eod;
  if (!asked.empty()) {
    const int32_t id = special_id(asked);
    SMELT_CHECK(ConfigError, id >= 0,
                where << ": the token that ends a document, '" << asked << "' as "
                      << (eod.empty() ? "tokenizer_config.json" : "the option")
                      << " says, must be one of added_tokens with \"special\":true");
    return id;
  }
  if (names_.eos_id >= 0) {
    const bool special =
        names_.eos_id < vocab_size() && tokens_[static_cast<size_t>(names_.eos_id)].special;
    SMELT_CHECK(ConfigError, special,
                where << ": eos_token_id = " << names_.eos_id
                      << " of config.json must be one of added_tokens with \"special\":true");
    return static_cast<int32_t>(names_.eos_id);
  }
  std::string tried;
  for (const char* name : kEndNames) {
    if (const int32_t id = special_id(name); id >= 0) return id;
    tried += std::string(tried.empty() ? "" : ", ") + name;
  }
  throw ConfigError(where +
                    ": no token ends a document; name one, or add one of these to "
                    "added_tokens with \"special\":true: " +
                    tried);
}

const BpeTokenizer::Token& BpeTokenizer::token(int32_t id) const {
  SMELT_CHECK(ConfigError, id >= 0 && id < vocab_size(),
              "decode: id " << id << " is outside the vocabulary of " << vocab_size());
  return tokens_[static_cast<size_t>(id)];
}

int64_t BpeTokenizer::id_bytes(int32_t id) const {
  const Token& t = token(id);
  return t.special ? 0 : static_cast<int64_t>(t.text.size());
}

int32_t BpeTokenizer::find_token(std::string_view name) const {
  for (const AddedToken& added : file_.added)
    if (added.content == name) return added.id;
  return file_.vocabulary->find_spelling(name);
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    const Token& t = token(id);
    if (!t.special) text += t.text;
  }
  return text;
}

/// Calls sink(piece, -1) for the pieces and sink(text, id) for the added tokens of `text`.
template <class Sink>
void BpeTokenizer::split(std::string_view text, bool added, bool specials, Scratch& scratch,
                         Sink&& sink) const {
  const auto pieces = [&](std::string_view part) {
    file_.pre_tokenizer.split(part, scratch.regex,
                              [&](std::string_view piece) { sink(piece, -1); });
  };
  const auto valid = [&](std::string_view part) {
    if (file_.nfc) part = to_nfc(part, scratch.normal);
    if (!added || !normalized_.finds(specials)) return pieces(part);
    normalized_.split(part, specials, [&](std::string_view inner, int32_t id) {
      id < 0 ? pieces(inner) : sink(inner, id);
    });
  };
  const auto any = [&](std::string_view part) {
    while (!part.empty()) {
      const size_t good = valid_utf8_prefix(part);
      if (good > 0) valid(part.substr(0, good));
      part.remove_prefix(good);
      const size_t bad = invalid_utf8_prefix(part);
      if (bad > 0) sink(part.substr(0, bad), -1);
      part.remove_prefix(bad);
    }
  };
  if (!added || !raw_.finds(specials)) return any(text);
  raw_.split(text, specials,
             [&](std::string_view part, int32_t id) { id < 0 ? any(part) : sink(part, id); });
}

void BpeTokenizer::encode(std::string_view text, const EncodeOptions& options,
                          std::vector<int32_t>& ids) const {
  Lease lease(*this);
  Scratch& scratch = *lease;
  if (options.add_specials) ids.insert(ids.end(), file_.prefix.begin(), file_.prefix.end());
  split(text, true, options.recognise_specials, scratch, [&](std::string_view piece, int32_t id) {
    id < 0 ? file_.bpe->encode(piece, scratch.bpe, ids) : ids.push_back(id);
  });
  if (options.add_specials) ids.insert(ids.end(), file_.suffix.begin(), file_.suffix.end());
}

void BpeTokenizer::for_each_piece(std::string_view text,
                                  const std::function<void(std::string_view)>& sink) const {
  Lease lease(*this);
  split(text, false, false, *lease, [&](std::string_view piece, int32_t) { sink(piece); });
}

ByteTokenizer::ByteTokenizer() : BpeTokenizer(byte_tokenizer_text(), "the byte tokenizer") {}

}  // namespace smelt
