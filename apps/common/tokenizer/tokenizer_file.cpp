#include "apps/common/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <set>

#include "apps/common/tokenizer/json_fields.h"
#include "tensor/error.h"

namespace smelt {
namespace {

namespace json = boost::json;

constexpr size_t kLongestFile = size_t{64} << 20;
constexpr size_t kParsedBytes = size_t{1} << 30;
constexpr size_t kMostAdded = 65536;
constexpr size_t kMostStages = 16;

constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

std::string element(const std::string& where, std::string_view key, size_t i) {
  return where + ": " + std::string(key) + "[" + std::to_string(i) + "]";
}

/// Calls f for each part of a Sequence, or for the one thing that `fields` is.
template <class F>
void each_of_sequence(const JsonFields& fields, std::string_view list, F f) {
  if (fields.required_text("type") != "Sequence") return f(fields);
  const json::array& parts = fields.required_array(list);
  for (size_t i = 0; i < parts.size(); ++i)
    each_of_sequence(fields_of(parts[i], element(fields.where, list, i)), list, f);
}

bool read_normalizer(const JsonFields& file) {
  bool nfc = false;
  if (file.find("normalizer") == nullptr) return false;
  each_of_sequence(file.required_object("normalizer"), "normalizers", [&](const JsonFields& part) {
    if (part.required_text("type") != "NFC") part.refuse("type", part.find("type"), "NFC");
    nfc = true;
  });
  return nfc;
}

SplitBehavior behavior_of(const JsonFields& split) {
  const std::string_view name = split.required_text("behavior");
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  split.refuse("behavior", split.find("behavior"),
               "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

PreTokenizer read_pre_tokenizer(const JsonFields& file) {
  std::vector<PreTokenizerStage> stages;
  bool byte_level = false;
  const auto isolated = [&](std::string_view pattern, const std::string& where) {
    stages.emplace_back();
    stages.back().pattern.push_back(Regex::pattern(pattern, where));
  };
  const auto add = [&](const JsonFields& part) {
    const std::string_view type = part.required_text("type");
    SMELT_CHECK(
        ConfigError, !byte_level,
        part.where << ": nothing may follow ByteLevel, after which text is in its alphabet");
    SMELT_CHECK(ConfigError, stages.size() < kMostStages,
                part.where << ": more than " << kMostStages << " steps");
    if (type == "ByteLevel") {
      byte_level = true;
      if (part.flag("add_prefix_space", true)) stages.emplace_back();
      if (part.flag("use_regex", true)) isolated(kGpt2Pattern, part.where);
    } else if (type == "Digits") {
      isolated(part.flag("individual_digits", false) ? "\\p{N}" : "\\p{N}+", part.where);
    } else if (type == "Split") {
      const JsonFields pattern = part.required_object("pattern");
      PreTokenizerStage stage;
      stage.pattern.push_back(
          pattern.find("String") != nullptr
              ? Regex::literal(pattern.text("String"), pattern.place("String"))
              : Regex::pattern(pattern.required_text("Regex"), pattern.place("Regex")));
      stage.behavior = behavior_of(part);
      stage.invert = part.flag("invert", false);
      stages.push_back(std::move(stage));
    } else {
      part.refuse("type", part.find("type"), "ByteLevel, Split, Digits or a Sequence of them");
    }
  };
  if (file.find("pre_tokenizer") != nullptr)
    each_of_sequence(file.required_object("pre_tokenizer"), "pretokenizers", add);
  if (!byte_level)
    file.refuse("pre_tokenizer", file.find("pre_tokenizer"),
                "ByteLevel or a Sequence that ends with it: smelt implements byte-level BPE");
  return PreTokenizer(std::move(stages));
}

void read_decoder(const JsonFields& file, std::vector<std::string>& notices) {
  if (file.find("decoder") == nullptr) {
    notices.push_back(file.where + ": decoder is null; ids are decoded as ByteLevel does");
    return;
  }
  each_of_sequence(file.required_object("decoder"), "decoders", [](const JsonFields& part) {
    if (part.required_text("type") != "ByteLevel")
      part.refuse("type", part.find("type"), "ByteLevel");
  });
}

/// Puts the ids of "single" around what earlier processors have put around the text.
void read_template(const JsonFields& part, TokenizerFile& result) {
  const json::array& single = part.required_array("single");
  const JsonFields tokens = part.required_object("special_tokens");
  std::vector<int32_t> before, after;
  bool text = false;
  for (size_t i = 0; i < single.size(); ++i) {
    const JsonFields piece = fields_of(single[i], element(part.where, "single", i));
    if (piece.find("Sequence") != nullptr) {
      const JsonFields sequence = piece.required_object("Sequence");
      if (text || sequence.required_text("id") != "A")
        sequence.refuse("id", sequence.find("id"), "one sequence \"A\"");
      text = true;
      continue;
    }
    const std::string name(piece.required_object("SpecialToken").required_text("id"));
    const JsonFields token = tokens.required_object(name);
    for (const json::value& id : token.required_array("ids")) {
      if (!id.is_int64() || id.as_int64() < 0 || id.as_int64() >= kMaxVocabulary)
        token.refuse("ids", &id, "ids of the vocabulary");
      (text ? after : before).push_back(static_cast<int32_t>(id.as_int64()));
    }
  }
  SMELT_CHECK(ConfigError, text, part.place("single") << " has no {\"Sequence\":{\"id\":\"A\"}}");
  result.prefix.insert(result.prefix.begin(), before.begin(), before.end());
  result.suffix.insert(result.suffix.end(), after.begin(), after.end());
}

void read_post_processor(const JsonFields& file, TokenizerFile& result) {
  if (file.find("post_processor") == nullptr) return;
  each_of_sequence(file.required_object("post_processor"), "processors",
                   [&](const JsonFields& part) {
                     const std::string_view type = part.required_text("type");
                     if (type == "TemplateProcessing") return read_template(part, result);
                     if (type != "ByteLevel")
                       part.refuse("type", part.find("type"),
                                   "ByteLevel, TemplateProcessing or a Sequence of them");
                   });
}

std::unique_ptr<Vocabulary> read_vocabulary(const JsonFields& model) {
  const JsonFields vocab = model.required_object("vocab");
  std::vector<std::pair<std::string_view, int64_t>> entries;
  entries.reserve(vocab.object.size());
  for (const auto& entry : vocab.object) {
    const std::string_view name(entry.key().data(), entry.key().size());
    if (!entry.value().is_int64()) vocab.refuse(name, &entry.value(), "an integer");
    entries.emplace_back(name, entry.value().as_int64());
  }
  return std::make_unique<Vocabulary>(entries, vocab.where);
}

/// The two parts of a merge, spelled "a b" or ["a","b"].
std::pair<std::string_view, std::string_view> merge_parts(const json::value& merge,
                                                          const std::string& where, size_t i) {
  if (merge.is_string()) {
    const std::string_view text = view(merge.as_string());
    const size_t blank = text.find(' ');
    if (blank != std::string_view::npos && text.find(' ', blank + 1) == std::string_view::npos)
      return {text.substr(0, blank), text.substr(blank + 1)};
  } else if (merge.is_array() && merge.as_array().size() == 2) {
    const json::value &left = merge.as_array()[0], &right = merge.as_array()[1];
    if (left.is_string() && right.is_string())
      return {view(left.as_string()), view(right.as_string())};
  }
  throw ConfigError(element(where, "merges", i) +
                    " must be two tokens, as \"a b\" or [\"a\",\"b\"]");
}

MergeTable read_merges(const JsonFields& model, const Vocabulary& vocabulary,
                       std::set<int32_t>& results) {
  const json::array& merges = model.required_array("merges");
  MergeTable table(merges.size());
  uint32_t rank = 0;
  for (size_t i = 0; i < merges.size(); ++i) {
    if (merges[i].kind() != merges[0].kind())
      throw ConfigError(element(model.where, "merges", i) + " is spelled unlike the first one");
    if (merges[i].is_string() && view(merges[i].as_string()).starts_with("#version")) continue;
    const auto [left, right] = merge_parts(merges[i], model.where, i);
    const auto id_of = [&](std::string_view part) {
      const int32_t id = vocabulary.find_spelling(part);
      SMELT_CHECK(ConfigError, id >= 0,
                  element(model.where, "merges", i) << ": '" << part << "' is not in vocab");
      return id;
    };
    const int32_t left_id = id_of(left), right_id = id_of(right);
    const int32_t id = id_of(std::string(left) + std::string(right));
    table.put(left_id, right_id, {rank++, id});
    results.insert(id);
  }
  return table;
}

void read_model(const JsonFields& file, TokenizerFile& result, std::set<int32_t>& from_text) {
  const JsonFields model = file.required_object("model");
  if (model.find("type") != nullptr && model.text("type") != "BPE")
    model.refuse("type", model.find("type"), "BPE");
  if (const json::value* dropout = model.find("dropout")) {
    const bool zero = dropout->is_number() && dropout->to_number<double>() == 0;
    if (!zero) model.refuse("dropout", dropout, "null or 0: ids must not be random");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.text(key).empty()) model.refuse(key, model.find(key), "null or \"\"");
  model.text("unk_token");  // never needed where all bytes are known
  model.flag("fuse_unk", false);
  model.flag("byte_fallback", false);
  result.vocabulary = read_vocabulary(model);
  MergeTable merges = read_merges(model, *result.vocabulary, from_text);
  for (const int32_t id : result.vocabulary->byte_ids()) from_text.insert(id);
  result.bpe = std::make_unique<Bpe>(*result.vocabulary, std::move(merges),
                                     model.flag("ignore_merges", false));
}

/// @param from_text  ids that merges and single bytes give
void read_added(const JsonFields& file, const std::set<int32_t>& from_text, TokenizerFile& result) {
  if (file.find("added_tokens") == nullptr) return;
  const json::array& list = file.required_array("added_tokens");
  SMELT_CHECK(ConfigError, list.size() <= kMostAdded,
              file.place("added_tokens")
                  << " has " << list.size() << " tokens; allowed are " << kMostAdded);
  const Vocabulary& vocabulary = *result.vocabulary;
  std::set<std::string_view> known;
  int64_t largest = -1;  // id of an added token
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonFields fields = fields_of(list[i], element(file.where, "added_tokens", i));
    AddedToken token;
    token.content = fields.required_text("content");
    token.single_word = fields.flag("single_word", false);
    token.lstrip = fields.flag("lstrip", false);
    token.rstrip = fields.flag("rstrip", false);
    token.special = fields.flag("special", false);
    token.normalized = fields.flag("normalized", !token.special);
    if (token.content.empty()) fields.refuse("content", fields.find("content"), "a text");
    if (!known.insert(fields.text("content")).second)
      fields.refuse("content", fields.find("content"), "a text that no other added token has");

    // The tokenizers library hands out ids by this rule, whatever the file says.
    int64_t id = vocabulary.find_spelling(token.content);
    if (id < 0) id = std::max(largest + 1, vocabulary.entries());
    largest = std::max(largest, id);
    const int64_t given = fields.required_integer("id");
    SMELT_CHECK(ConfigError, given == id,
                fields.place("id")
                    << " is " << given << "; allowed is " << id
                    << ", which the tokenizers library gives to '" << token.content << "'");
    SMELT_CHECK(ConfigError, id < kMaxVocabulary, fields.place("id") << " is too large");
    token.id = static_cast<int32_t>(id);
    if (id < vocabulary.size() && !vocabulary.bytes(token.id).empty()) {
      SMELT_CHECK(ConfigError, vocabulary.bytes(token.id) == token.content,
                  fields.place("content")
                      << " '" << token.content << "' is spelled like the entry of id " << id
                      << ", which stands for other bytes");
      SMELT_CHECK(ConfigError, !token.special || from_text.count(token.id) == 0,
                  fields.place("content") << " '" << token.content
                                          << "' is special, but merges give it from ordinary text");
      if (token.special) result.bpe->exclude(token.id);
    }
    result.added.push_back(std::move(token));
  }
}

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view text, const std::string& where) {
  SMELT_CHECK(IoError, text.size() <= kLongestFile,
              where << ": " << text.size() << " bytes; a tokenizer may have " << kLongestFile);
  const BoundedJson parsed(text, where, kParsedBytes);
  const JsonFields file = parsed.root();
  if (file.find("version") != nullptr && file.text("version") != "1.0")
    file.refuse("version", file.find("version"), "\"1.0\"");
  TokenizerFile result;
  for (const char* key : {"truncation", "padding"})
    if (file.find(key) != nullptr)
      result.notices.push_back(file.place(key) + " is ignored: texts are encoded whole");
  result.pre_tokenizer = read_pre_tokenizer(file);
  result.nfc = read_normalizer(file);
  read_decoder(file, result.notices);
  read_post_processor(file, result);
  std::set<int32_t> from_text;
  read_model(file, result, from_text);
  read_added(file, from_text, result);
  return result;
}

}  // namespace smelt
