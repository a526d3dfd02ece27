// Ids of the tokenizers library, written by tests/interop/tokenizer_golden.py: small vocabularies
// of every style and nasty texts.
#include <cstring>
#include <map>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "apps/common/tokenizer/utf8.h"
#include "tests/apps/data_files.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

namespace bdata = boost::unit_test::data;

const std::string kFolder = std::string(SMELT_SOURCE_DIR) + "/tests/golden/tokenizer/";

std::vector<std::string> golden_texts() {
  const std::string all = read_file(kFolder + "texts.bin");
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size();) {
    uint32_t bytes = 0;
    std::memcpy(&bytes, all.data() + at, 4);
    texts.push_back(all.substr(at + 4, bytes));
    at += 4 + bytes;
  }
  return texts;
}

std::vector<std::vector<int32_t>> golden_ids(const std::string& name) {
  const std::string all = read_file(kFolder + name);
  std::vector<std::vector<int32_t>> lists;
  const auto number = [&](size_t at) {
    uint16_t value = 0;
    std::memcpy(&value, all.data() + at, 2);
    return value;
  };
  for (size_t at = 0; at < all.size();) {
    lists.emplace_back();
    const size_t count = number(at);
    for (size_t i = 1; i <= count; ++i) lists.back().push_back(number(at + 2 * i));
    at += 2 + 2 * count;
  }
  return lists;
}

void check_ids(const std::string& name, const std::string& suffix, const EncodeOptions& options) {
  const auto tokenizer = load_tokenizer(kFolder + name + ".json");
  const auto texts = golden_texts();
  const auto lists = golden_ids(name + suffix);
  BOOST_TEST_REQUIRE(texts.size() == lists.size());
  BOOST_TEST_REQUIRE(texts.size() > 300u);
  for (size_t i = 0; i < texts.size(); ++i)
    BOOST_TEST(tokenizer->encode(replace_invalid_utf8(texts[i]), options) == lists[i],
               name << suffix << ", text " << i << ", " << texts[i].size() << " bytes: '"
                    << texts[i].substr(0, 80) << "'");
}

const std::vector<std::string> kAll = {"gpt2",    "llama3",    "qwen", "untrained",
                                       "added",   "previous",  "next", "removed_invert",
                                       "removed", "contiguous"};
const std::vector<std::string> kWithSpecials = {"gpt2", "llama3", "qwen", "added"};

}  // namespace

BOOST_AUTO_TEST_SUITE(golden)

BOOST_DATA_TEST_CASE(ids_are_those_of_the_library, bdata::make(kAll), name) {
  check_ids(name, ".ids", {});
}

BOOST_DATA_TEST_CASE(ids_with_special_tokens_too, bdata::make(kWithSpecials), name) {
  check_ids(name, ".specials", {.recognise_specials = true, .add_specials = true});
}

// Case 96: what a tokenizer calls exact comes back, without replacing anything, also id by id.
BOOST_DATA_TEST_CASE(case_96_every_byte_string_survives, bdata::make(kAll), name) {
  const std::map<std::string, bool> exact = {
      {"gpt2", true}, {"llama3", true}, {"untrained", true}, {"contiguous", true}};
  const auto tokenizer = load_tokenizer(kFolder + name + ".json");
  BOOST_TEST(tokenizer->exact() == (exact.count(name) > 0));
  for (const std::string& text : golden_texts()) {
    const auto ids = tokenizer->encode(text);
    int64_t bytes = 0;
    std::string streamed;
    StreamDecoder decoder(*tokenizer);
    for (const int32_t id : ids) {
      bytes += tokenizer->id_bytes(id);
      streamed += decoder.push(id);
    }
    streamed += decoder.finish();
    BOOST_TEST(streamed == tokenizer->decode(ids));
    BOOST_TEST(bytes == int64_t(streamed.size()));
    if (tokenizer->exact()) BOOST_TEST(streamed == text);
  }
}

BOOST_DATA_TEST_CASE(saved_files_load_as_they_were, bdata::make(kAll), name) {
  const ScratchFolder dir;
  const auto tokenizer = load_tokenizer(kFolder + name + ".json");
  tokenizer->save(dir.path());
  BOOST_TEST(read_file(dir.path("tokenizer.json")) == read_file(kFolder + name + ".json"));
  const auto again = load_tokenizer(dir.path());
  BOOST_TEST(again->vocab_size() == tokenizer->vocab_size());
  BOOST_TEST(again->eod_id() == tokenizer->eod_id());
  BOOST_TEST(again->encode("It's a test.") == tokenizer->encode("It's a test."));
}

BOOST_AUTO_TEST_SUITE_END()
