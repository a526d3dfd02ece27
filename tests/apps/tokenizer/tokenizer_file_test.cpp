// tokenizer.json: both spellings of merges, and errors that name key and value for everything that
// is malformed, inconsistent or not implemented.
#include <functional>

#include <boost/test/unit_test.hpp>

#include "apps/common/tokenizer/json_fields.h"
#include "tensor/error.h"
#include "tests/apps/data_files.h"
#include "tests/apps/tokenizer/tokenizer_files.h"

using namespace smelt;
using namespace smelt::testing;
namespace json = boost::json;

namespace {

using Change = std::function<void(json::object&)>;

void check_refused(const Change& change, const std::string& text) {
  json::object file = small_file(TokenizerStyle::qwen);
  change(file);
  BOOST_TEST_CONTEXT(text) { BOOST_CHECK_EXCEPTION(tokenizer_of(file), ConfigError, says(text)); }
}

json::object split(const json::value& pattern) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}};
}

json::value pre_tokenizer(const json::value& first) {
  return json::object{
      {"type", "Sequence"},
      {"pretokenizers",
       {first, {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

std::vector<std::string> pieces_of(const std::string& pattern, const std::string& text) {
  json::object file = small_file();
  file["pre_tokenizer"] = pre_tokenizer(split({{"Regex", pattern}}));
  std::vector<std::string> pieces;
  tokenizer_of(file).for_each_piece(text, [&](std::string_view p) { pieces.emplace_back(p); });
  return pieces;
}

using Pieces = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_file)

BOOST_AUTO_TEST_CASE(merges_are_strings_or_pairs) {
  json::object file = small_file();
  auto& model = file["model"].as_object();
  model["merges"] = {"#version: 0.2", "a b", "ab c", "c d"};
  BOOST_TEST(tokenizer_of(file).encode("abcd") == (Ids{257, 'd'}));
  model["merges"] = {"c d", "a b", "ab c"};
  BOOST_TEST(tokenizer_of(file).encode("abcd") == (Ids{256, 258}));
  // The later rank of a pair counts.
  model["merges"] = {"a b", "ab c", "c d", "a b"};
  BOOST_TEST(tokenizer_of(file).encode("bcdabcd") == (Ids{'b', 258, 256, 258}));
}

BOOST_AUTO_TEST_CASE(model_is_checked) {
  const auto model = [](const Change& change, const std::string& text) {
    check_refused([&](json::object& file) { change(file["model"].as_object()); }, text);
  };
  model([](auto& m) { m["type"] = "Unigram"; }, "model: type is \"Unigram\"; allowed is BPE");
  model([](auto& m) { m["dropout"] = 0.1; }, "model: dropout is 1E-1; allowed is null or 0");
  model([](auto& m) { m["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix is \"</w>\"");
  model([](auto& m) { m["continuing_subword_prefix"] = "##"; }, "continuing_subword_prefix");
  model([](auto& m) { m["ignore_merges"] = 1; }, "ignore_merges is 1; allowed is true or false");
  model([](auto& m) { m.erase("vocab"); }, "model: vocab is absent or null");
  model([](auto& m) { m["vocab"] = json::array{}; }, "model: vocab is an array");
  model([](auto& m) { m["vocab"].as_object()["ab"] = -1; }, "id -1 of 'ab' must be at least 0");
  model([](auto& m) { m["vocab"].as_object()["ab"] = 1 << 22; }, "id 4194304 of 'ab' must be");
  model([](auto& m) { m["vocab"].as_object()["ab"] = 1e300; }, "vocab: ab is 1E300");
  model([](auto& m) { m["vocab"].as_object()["ab"] = UINT64_MAX; }, "allowed is an integer");
  model([](auto& m) { m["vocab"].as_object()["ab"] = 7; }, "id 7 is given twice");
  model([](auto& m) { m["vocab"].as_object()[""] = 300; }, "the entry of id 300 is empty");
  model([](auto& m) { m["vocab"].as_object().erase("!"); }, "no entry '!' for byte 33");
  model([](auto& m) { m.erase("merges"); }, "model: merges is absent or null");
  model(
      [](auto& m) {
        m["merges"] = {"a b", json::array{"ab", "c"}};
      },
      "merges[1] is spelled unlike");
  model([](auto& m) { m["merges"] = json::array{"ab"}; }, "merges[0] must be two tokens");
  model([](auto& m) { m["merges"] = json::array{"a b c"}; }, "merges[0] must be two tokens");
  model([](auto& m) { m["merges"] = json::parse(R"([["a", 1]])"); },
        "merges[0] must be two tokens");
  model([](auto& m) { m["merges"] = json::parse(R"([["a", "nothing"]])"); },
        "merges[0]: 'nothing' is not");
  model([](auto& m) { m["merges"] = json::array{"b a"}; }, "merges[0]: 'ba' is not in vocab");
}

BOOST_AUTO_TEST_CASE(added_tokens_are_checked) {
  const auto added = [](const json::value& tokens, const std::string& text) {
    check_refused([&](json::object& file) { file["added_tokens"] = tokens; }, text);
  };
  added({added_token(300, "<x>", true)}, "added_tokens[0]: id is 300; allowed is 259");
  added({added_token(259, "abc", false)}, "id is 259; allowed is 257");
  added({added_token(259, "", true)}, "content is \"\"");
  added({added_token(259, "<x>", true), added_token(259, "<x>", true)}, "no other added token has");
  added({added_token(257, "abc", true)}, "'abc' is special, but merges give it");
  added({added_token(0xE9, "\u00e9", false)}, "stands for other bytes");
  added({7}, "added_tokens[0] must be an object");
  added({{{"id", 259}}}, "content is absent or null");
  added(json::object{}, "added_tokens is an object");
}

BOOST_AUTO_TEST_CASE(parts_that_are_not_implemented_are_refused) {
  const auto part = [](const char* key, const json::value& value, const std::string& text) {
    check_refused([&](json::object& file) { file[key] = value; }, text);
  };
  part("version", "2.0", "version is \"2.0\"");
  part("normalizer", {{"type", "NFKC"}}, "normalizer: type is \"NFKC\"; allowed is NFC");
  part("normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}},
       "normalizer: normalizers[0]: type is \"Lowercase\"");
  part("pre_tokenizer", nullptr, "pre_tokenizer is absent or null; allowed is ByteLevel");
  part("pre_tokenizer", {{"type", "Whitespace"}}, "type is \"Whitespace\"");
  part("pre_tokenizer", split({{"Regex", "x"}}), "allowed is ByteLevel or a Sequence");
  part("pre_tokenizer", pre_tokenizer({{"type", "ByteLevel"}}), "nothing may follow ByteLevel");
  part("pre_tokenizer", pre_tokenizer(split({{"Regex", ""}})), "can match the empty text");
  part("pre_tokenizer", pre_tokenizer(split({{"String", ""}})), "can match the empty text");
  part("pre_tokenizer", pre_tokenizer(split({{"Regex", "a*"}})), "can match the empty text");
  part("pre_tokenizer", pre_tokenizer(split({{"Regex", "(a"}})), "is not a regular expression");
  part("pre_tokenizer", pre_tokenizer(split({{"Glob", "a"}})), "Regex is absent or null");
  part("pre_tokenizer", pre_tokenizer(split({{"Regex", std::string(20000, 'a')}})), "20000 bytes");
  json::object odd = split({{"Regex", "x"}});
  odd["behavior"] = "Dropped";
  part("pre_tokenizer", pre_tokenizer(odd), "behavior is \"Dropped\"");
  part("decoder", {{"type", "WordPiece"}}, "decoder: type is \"WordPiece\"");
  part("post_processor", {{"type", "BertProcessing"}}, "post_processor: type is");
  const json::value a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto templated = [](const json::array& single, const json::value& ids) {
    return json::object{{"type", "TemplateProcessing"},
                        {"single", single},
                        {"special_tokens", {{"<b>", {{"id", "<b>"}, {"ids", ids}}}}}};
  };
  const json::value b = {{"SpecialToken", {{"id", "<b>"}, {"type_id", 0}}}};
  part("post_processor", templated({b}, json::array{1}), "has no {\"Sequence\":{\"id\":\"A\"}}");
  part("post_processor", templated({a, a}, json::array{1}), "allowed is one sequence \"A\"");
  part("post_processor", templated({b, a}, json::array{-1}), "ids is -1");
  part("post_processor", templated({b, a}, json::array{9999}),
       "post_processor: id 9999 is no token");
  part("model", nullptr, "model is absent or null");
}

BOOST_AUTO_TEST_CASE(what_is_not_json_is_refused) {
  for (const std::string text : {"", "{", "[1]", "{\"a\":\"\xFF\"}", "{} x"})
    BOOST_CHECK_EXCEPTION(BpeTokenizer(text, "t.json"), IoError, says("t.json: "));
  BOOST_CHECK_THROW(BpeTokenizer(std::string(100, '['), "t.json"), IoError);
  BOOST_CHECK_EXCEPTION(BpeTokenizer(std::string((64 << 20) + 1, ' '), "t.json"), IoError,
                        says("a tokenizer may have"));
  BOOST_CHECK_EXCEPTION(load_tokenizer("/none/tokenizer.json"), IoError, says("cannot read"));
  BOOST_CHECK_EXCEPTION(load_tokenizer("/dev/zero"), IoError, says("/dev/zero: more than"));
}

BOOST_AUTO_TEST_CASE(parsed_values_take_bounded_memory) {
  std::string text = "{\"a\":[0";
  for (int i = 0; i < 20000; ++i) text += ",0";
  text += "]}";
  BOOST_TEST(BoundedJson(text, "t.json", 4 << 20).root().required_array("a").size() == 20001u);
  BOOST_CHECK_EXCEPTION(BoundedJson(text, "t.json", 1 << 18), IoError,
                        says("t.json: its values take more than 262144 bytes of memory"));
}

BOOST_AUTO_TEST_CASE(constructs_that_engines_read_differently_are_refused) {
  for (const std::string pattern : {"^a",           "a$",
                                    "\\ba",         "\\wa",
                                    "\\ha",         "\\Aa",
                                    "a\\z",         "a\\K",
                                    "\\Ra",         "(a)\\1",
                                    "(?<=a)b",      "(?<n>a)",
                                    "(?i)a",        "(?m:a)",
                                    "(*COMMIT)a",   "a{1,3}+",
                                    "a{1,3}?",      "a{,3}",
                                    "a{",           "[[:alpha:]]",
                                    "[a&&b]",       "[]a]",
                                    "[^]a]",        "[\\Sa]",
                                    "(?i:\u00df)",  "(?i:[\u00df])",
                                    "(?i:ss)",      "(?i:aST)",
                                    "(?i:\\p{Lu})", "(?i:\\xdf)",
                                    "\\xff",        "\\x{110000}",
                                    "\\x{}",        "\\x{41",
                                    "\\ud800",      "\\u12",
                                    "\\pL",         "\\p{L",
                                    "\\p{}",        "\\",
                                    "\\\u00e9",     "\\Qa\\E"})
    BOOST_TEST_CONTEXT(pattern)
  BOOST_CHECK_EXCEPTION(pieces_of(pattern, "a"), ConfigError, says("is not supported"));
  BOOST_CHECK_EXCEPTION(pieces_of("\\p{Klingon}", "a"), ConfigError,
                        says("is not a regular expression"));
}

BOOST_AUTO_TEST_CASE(constructs_are_read_as_oniguruma_reads_them) {
  // U+180E is no blank, U+0085 and U+2028 are.
  BOOST_TEST(pieces_of("\\s+", "a\u180e b\u0085\u2028c") ==
             (Pieces{"a\u180e", " ", "b", "\u0085\u2028", "c"}));
  BOOST_TEST(pieces_of("[^\\s]+", "a\u180e\u3000b") == (Pieces{"a\u180e", "\u3000", "b"}));
  BOOST_TEST(pieces_of("\\S+", "a \u00a0b") == (Pieces{"a", " \u00a0", "b"}));
  BOOST_TEST(pieces_of("\\d", "a1\u0661\u00b2") == (Pieces{"a", "1", "\u0661", "\u00b2"}));
  // The script itself: U+30FC is written with Hiragana and Katakana, but belongs to neither.
  BOOST_TEST(pieces_of("\\p{Hiragana}+", "\u306e\u30fc") == (Pieces{"\u306e", "\u30fc"}));
  BOOST_TEST(pieces_of("\\p{^L}+", "ab1") == (Pieces{"ab", "1"}));
  BOOST_TEST(pieces_of("[\\u4e00-\\u9fa5]+|\\x41|\\v",
                       "a\u4e2d\u6587\x0b"
                       "A") == (Pieces{"a", "\u4e2d\u6587", "\x0b", "A"}));
  BOOST_TEST(pieces_of("(?i:'s|'T)", "x'\u017f'ty") == (Pieces{"x", "'\u017f", "'t", "y"}));
  BOOST_TEST(pieces_of("(?:a|ab)(?=c)|b", "abc") == (Pieces{"ab", "c"}));
  BOOST_TEST(pieces_of("a++b|a", "aab") == (Pieces{"aab"}));
  BOOST_TEST(pieces_of("[\\[\\]&]", "a[&]") == (Pieces{"a", "[", "&", "]"}));
}

BOOST_AUTO_TEST_CASE(a_pattern_that_never_ends_is_an_error) {
  json::object file = small_file();
  file["pre_tokenizer"] = pre_tokenizer(split({{"Regex", "(?:a+)+[bc]"}}));
  const auto tokenizer = tokenizer_of(file);
  BOOST_CHECK_EXCEPTION(tokenizer.encode(std::string(60, 'a')), RunError, says("match limit"));
  BOOST_TEST(tokenizer.encode("x").size() == 1u);  // and no end of the tokenizer
}

BOOST_AUTO_TEST_SUITE_END()
