// Byte-level BPE: merging, special tokens, the end of documents, bytes that are not text, threads.
#include <atomic>
#include <thread>

#include <boost/test/unit_test.hpp>

#include "apps/common/tokenizer/nfc.h"
#include "apps/common/tokenizer/utf8.h"
#include "tensor/error.h"
#include "tensor/rng.h"
#include "tests/apps/data_files.h"
#include "tests/apps/tokenizer/tokenizer_files.h"

using namespace smelt;
using namespace smelt::testing;
namespace json = boost::json;

BOOST_AUTO_TEST_SUITE(bpe_tokenizer)

BOOST_AUTO_TEST_CASE(merges_by_rank_then_by_place) {
  const auto tokenizer = tokenizer_of(small_file());
  BOOST_TEST(tokenizer.encode("abcd") == (Ids{257, 'd'}));
  BOOST_TEST(tokenizer.encode("xcdab") == (Ids{'x', 258, 256}));
  BOOST_TEST(tokenizer.encode("aabab") == (Ids{'a', 256, 256}));
  BOOST_TEST(tokenizer.encode("") == Ids{});
  BOOST_TEST(tokenizer.vocab_size() == 260);
  BOOST_TEST(tokenizer.id_text(257) == "abc");
  BOOST_TEST(tokenizer.id_bytes(257) == 3);
  BOOST_TEST(tokenizer.find_token("abc") == 257);
  BOOST_TEST(tokenizer.find_token("\u0120") == ' ');
  BOOST_TEST(tokenizer.find_token("<|endoftext|>") == 259);
  BOOST_TEST(tokenizer.find_token("none") == -1);
}

// Pieces of one letter class, so long that the heap merges them: the same as naive merging.
BOOST_AUTO_TEST_CASE(long_pieces_merge_like_short_ones) {
  const auto tokenizer = tokenizer_of(small_file());
  const Random random(3, "tests/pieces");
  const auto naive = [](const std::string& text) {
    Ids ids(text.begin(), text.end());
    const int32_t merges[][3] = {{'a', 'b', 256}, {256, 'c', 257}, {'c', 'd', 258}};
    for (bool found = true; found;) {
      found = false;
      for (const auto& m : merges) {
        for (size_t i = 0; i + 1 < ids.size() && !found; ++i) {
          if (ids[i] != m[0] || ids[i + 1] != m[1]) continue;
          ids[i] = m[2];
          ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          found = true;
        }
        if (found) break;
      }
    }
    return ids;
  };
  uint64_t drawn = 0;
  for (size_t length = 1; length < 400; length += 7) {
    std::string text;
    while (text.size() < length) text += "abcd"[random.below(drawn++, 4)];
    BOOST_TEST(tokenizer.encode(text) == naive(text));
  }
}

BOOST_AUTO_TEST_CASE(a_megabyte_without_a_blank_is_one_piece) {
  const auto tokenizer = tokenizer_of(small_file(TokenizerStyle::qwen));
  std::string text;
  while (text.size() < 3 << 20) text += "abc";
  const auto ids = tokenizer.encode(text);
  BOOST_TEST(ids.size() == text.size() / 3);
  BOOST_TEST(tokenizer.decode(ids) == text);
  // Runs of blanks take a step of the pattern per character.
  const std::string blanks(12 << 20, ' ');
  BOOST_TEST(tokenizer.encode(blanks).size() == blanks.size());
}

BOOST_AUTO_TEST_CASE(ignore_merges_takes_whole_pieces_but_never_a_special_token) {
  json::object file = small_file();
  auto& model = file["model"].as_object();
  model["ignore_merges"] = true;
  model["vocab"].as_object()["bcd"] = 259;  // no merge leads to it
  model["vocab"].as_object()["<|x|>"] = 260;
  file["added_tokens"] = json::array{added_token(260, "<|x|>", true)};
  file["pre_tokenizer"].as_object()["use_regex"] = false;
  const auto tokenizer = tokenizer_of(file, {}, "<|x|>");
  BOOST_TEST(tokenizer.encode("bcd") == (Ids{259}));
  BOOST_TEST(tokenizer.encode("xbcd") == (Ids{'x', 'b', 258}));
  BOOST_TEST(tokenizer.encode("<|x|>") == (Ids{'<', '|', 'x', '|', '>'}));
  BOOST_TEST(tokenizer.encode("<|x|>", {.recognise_specials = true}) == (Ids{260}));
}

// Case 94: special tokens in a text are text, unless asked for.
BOOST_AUTO_TEST_CASE(case_94_special_text_gives_no_special_id) {
  for (const auto style : {TokenizerStyle::gpt2, TokenizerStyle::llama3, TokenizerStyle::qwen}) {
    const auto tokenizer = tokenizer_of(small_file(style));
    const std::string text = "before <|endoftext|> after";
    Ids ids = tokenizer.encode(text);
    for (const int32_t id : ids) BOOST_TEST(id != tokenizer.eod_id());
    ids.push_back(tokenizer.eod_id());
    BOOST_TEST(std::count(ids.begin(), ids.end(), tokenizer.eod_id()) == 1);
    BOOST_TEST(tokenizer.decode(ids) == text);
    const Ids found = tokenizer.encode(text, {.recognise_specials = true});
    BOOST_TEST(std::count(found.begin(), found.end(), tokenizer.eod_id()) == 1);
    BOOST_TEST(tokenizer.decode(found) == "before  after");
    BOOST_TEST(tokenizer.id_text(tokenizer.eod_id()) == "<|endoftext|>");
    BOOST_TEST(tokenizer.id_bytes(tokenizer.eod_id()) == 0);
  }
}

BOOST_AUTO_TEST_CASE(begin_token_only_where_asked_for) {
  BpeTrainer trainer({.vocab_size = 300, .style = TokenizerStyle::llama3});
  trainer.add("one two one two");
  const auto tokenizer = trainer.train();
  const int32_t begin = tokenizer->find_token("<|begin_of_text|>");
  BOOST_TEST(tokenizer->eod_id() == tokenizer->find_token("<|end_of_text|>"));
  Ids plain = tokenizer->encode("one");
  const Ids added = tokenizer->encode("one", {.add_specials = true});
  plain.insert(plain.begin(), begin);
  BOOST_TEST(added == plain);
  BOOST_TEST(tokenizer->decode(added) == "one");
  const auto config = json::parse(tokenizer->config_text()).as_object();
  BOOST_TEST(config.at("tokenizer_class") == "PreTrainedTokenizerFast");
  BOOST_TEST(config.at("bos_token") == "<|begin_of_text|>");
  BOOST_TEST(config.at("eos_token") == "<|end_of_text|>");
  BOOST_TEST(config.at("pad_token").is_null());
}

BOOST_AUTO_TEST_CASE(invalid_bytes_are_pieces_of_their_own) {
  const auto tokenizer = tokenizer_of(small_file(TokenizerStyle::qwen));
  std::vector<std::string> pieces;
  tokenizer.for_each_piece("ab \xFF\xC3\xE2\x82 cd\u00e9\xED\xA0\x80",
                           [&](std::string_view piece) { pieces.emplace_back(piece); });
  const std::vector<std::string> expected = {"ab", " ", "\xFF\xC3\xE2\x82", " cd\u00e9",
                                             "\xED\xA0\x80"};
  BOOST_TEST(pieces == expected);
}

BOOST_AUTO_TEST_CASE(replacing_is_that_of_python) {
  BOOST_TEST(replace_invalid_utf8("a\xC3") == "a\uFFFD");
  BOOST_TEST(replace_invalid_utf8("\xE2\x82z") == "\uFFFDz");
  BOOST_TEST(replace_invalid_utf8("\xF0\x9F\x98\xFF") == "\uFFFD\uFFFD");
  BOOST_TEST(replace_invalid_utf8("\xED\xA0\x80") == "\uFFFD\uFFFD\uFFFD");
  BOOST_TEST(replace_invalid_utf8("\xC0\xAF") == "\uFFFD\uFFFD");
  BOOST_TEST(replace_invalid_utf8("\xF4\x90\x80\x80") == "\uFFFD\uFFFD\uFFFD\uFFFD");
  BOOST_TEST(replace_invalid_utf8("\u20ac\U0010ffff") == "\u20ac\U0010ffff");
}

BOOST_AUTO_TEST_CASE(nfc_changes_what_it_must_and_nothing_else) {
  const auto nfc = [](std::string_view text) {
    std::string storage;
    return std::string(to_nfc(text, storage));
  };
  BOOST_TEST(nfc("cafe\u0301") == "caf\u00e9");
  BOOST_TEST(nfc("z\u0344y") == "z\u0308\u0301y");
  BOOST_TEST(nfc("\u212b \u2126") == "\u00c5 \u03a9");
  BOOST_TEST(nfc("\u1100\u1161\u11a8") == "\uac01");
  BOOST_TEST(nfc("q\u0307\u0323") == "q\u0323\u0307");
  BOOST_TEST(nfc("\u09c7\u09be") == "\u09cb");
  BOOST_TEST(nfc("\u0958") == "\u0915\u093c");
  BOOST_TEST(nfc(std::string("a\0e\u0301", 5)) == std::string("a\0\u00e9", 4));
  const std::string plain = "it\u2019s 5 \u20ac, \u4e2d\u6587 \U0001f600 caf\u00e9";
  std::string storage;
  BOOST_TEST(to_nfc(plain, storage).data() == plain.data());
  const auto tokenizer = tokenizer_of(small_file(TokenizerStyle::qwen));
  BOOST_TEST(tokenizer.decode(tokenizer.encode("cafe\u0301\xFF")) == "caf\u00e9\xFF");
  BOOST_TEST(!tokenizer.exact());
}

BOOST_AUTO_TEST_CASE(threads_share_one_tokenizer) {
  const auto tokenizer = tokenizer_of(small_file(TokenizerStyle::qwen));
  std::vector<std::string> texts;
  for (int i = 0; i < 50; ++i)
    texts.push_back(std::string(static_cast<size_t>(i), 'a') + "bcd " + std::to_string(i));
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round)
        for (size_t i = 0; i < texts.size(); ++i)
          if (tokenizer.encode(texts[i]) != expected[i]) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(end_of_documents_by_option_files_and_names) {
  json::object file = small_file();
  file["added_tokens"] =
      json::array{added_token(259, "<|im_end|>", true), added_token(260, "</s>", true),
                  added_token(261, "<mine>", true), added_token(262, "<plain>", false)};
  const ScratchFolder dir;
  write_file(dir.path("tokenizer.json"), json::serialize(file));
  BOOST_TEST(load_tokenizer(dir.path())->eod_id() == 260);
  write_file(dir.path("config.json"), R"({"eos_token_id":[259, 260]})");
  BOOST_TEST(load_tokenizer(dir.path())->eod_id() == 259);
  write_file(dir.path("tokenizer_config.json"), R"({"eos_token":{"content":"<mine>"}})");
  BOOST_TEST(load_tokenizer(dir.path())->eod_id() == 261);
  BOOST_TEST(load_tokenizer(dir.path("tokenizer.json"))->eod_id() == 261);
  BOOST_TEST(load_tokenizer(dir.path(), "</s>")->eod_id() == 260);
  // Under another name, files beside say nothing.
  write_file(dir.path("other.json"), json::serialize(file));
  BOOST_TEST(load_tokenizer(dir.path("other.json"))->eod_id() == 260);

  BOOST_CHECK_EXCEPTION(load_tokenizer(dir.path(), "<plain>"), ConfigError,
                        says("'<plain>' as the option says, must be one of added_tokens"));
  write_file(dir.path("tokenizer_config.json"), R"({"eos_token":"<none>"})");
  BOOST_CHECK_EXCEPTION(load_tokenizer(dir.path()), ConfigError,
                        says("'<none>' as tokenizer_config.json says"));
  write_file(dir.path("tokenizer_config.json"), R"({"eos_token":7})");
  BOOST_CHECK_EXCEPTION(load_tokenizer(dir.path()), ConfigError,
                        says("tokenizer_config.json: eos_token is 7; allowed is a string"));
  write_file(dir.path("tokenizer_config.json"), "{");
  BOOST_CHECK_EXCEPTION(load_tokenizer(dir.path()), IoError, says("not valid JSON"));
  write_file(dir.path("tokenizer_config.json"), "{}");
  write_file(dir.path("config.json"), R"({"eos_token_id":5})");
  BOOST_CHECK_EXCEPTION(load_tokenizer(dir.path()), ConfigError,
                        says("eos_token_id = 5 of config.json must be"));
  file["added_tokens"] = json::array{};
  BOOST_CHECK_EXCEPTION(tokenizer_of(file), ConfigError, says("no token ends a document"));
}

BOOST_AUTO_TEST_CASE(notices_name_what_is_left_out) {
  json::object file = small_file();
  file["truncation"] = json::object{{"max_length", 8}};
  file["decoder"] = nullptr;
  const auto notices = tokenizer_of(file).notices();
  BOOST_TEST_REQUIRE(notices.size() == 2u);
  BOOST_TEST(notices[0] == "t.json: truncation is ignored: texts are encoded whole");
  BOOST_TEST(tokenizer_of(small_file()).notices().empty());
}

BOOST_AUTO_TEST_SUITE_END()
