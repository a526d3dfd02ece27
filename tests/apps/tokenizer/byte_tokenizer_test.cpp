// The byte tokenizer: exact for every byte string, and no special id out of text.
#include <boost/test/unit_test.hpp>

#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "apps/common/tokenizer/byte_level.h"
#include "tensor/error.h"
#include "tensor/rng.h"
#include "tests/apps/data_files.h"

using namespace smelt;
using namespace smelt::testing;

BOOST_AUTO_TEST_SUITE(byte_tokenizer)

// Case 96: bytes that are not text.
BOOST_AUTO_TEST_CASE(case_96_every_byte_string_survives) {
  const ByteTokenizer tokenizer;
  std::vector<std::string> samples{
      "", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xED\xA0\x80", std::string("a\0b", 3)};
  for (int byte = 0; byte < 256; ++byte) samples.emplace_back(1, static_cast<char>(byte));
  std::string all;
  for (const std::string& sample : samples) all += sample;
  samples.push_back(all);
  for (const std::string& sample : samples) {
    const std::vector<int32_t> ids = tokenizer.encode(sample);
    BOOST_TEST(tokenizer.decode(ids) == sample);
    std::string pieces, streamed;
    StreamDecoder decoder(tokenizer);
    for (const int32_t id : ids) {
      pieces += tokenizer.decode(std::span(&id, 1));
      streamed += decoder.push(id);
    }
    streamed += decoder.finish();
    BOOST_TEST(pieces == sample);
    BOOST_TEST(streamed == sample);
  }
}

BOOST_AUTO_TEST_CASE(case_96_streaming_holds_back_unfinished_characters) {
  const ByteTokenizer tokenizer;
  StreamDecoder decoder(tokenizer);
  BOOST_TEST(decoder.push(0xE2) == "");
  BOOST_TEST(decoder.push(0x82) == "");
  BOOST_TEST(decoder.push(0xAC) == "\u20ac");
  BOOST_TEST(decoder.push('x') == "x");
  BOOST_TEST(decoder.push(0xC3) == "");
  BOOST_TEST(decoder.push('y') == "\xC3y");
  BOOST_TEST(decoder.push(0x80) == "\x80");
  BOOST_TEST(decoder.push(0xF0) == "");
  BOOST_TEST(decoder.finish() == "\xF0");
}

// Case 94: the name of the end-of-document token inside a document is ordinary bytes.
BOOST_AUTO_TEST_CASE(case_94_special_text_gives_no_special_id) {
  const ByteTokenizer tokenizer;
  const std::string text = "before <|endoftext|> after";
  const std::vector<int32_t> ids = tokenizer.encode(text);
  BOOST_TEST(ids.size() == text.size());
  for (const int32_t id : ids) BOOST_TEST(id < 256);
  BOOST_TEST(tokenizer.eod_id() == 256);
  BOOST_TEST(tokenizer.vocab_size() == 257);
}

BOOST_AUTO_TEST_CASE(special_ids_decode_to_nothing_and_count_no_bytes) {
  const ByteTokenizer tokenizer;
  BOOST_TEST(tokenizer.decode(std::vector<int32_t>{'a', 256, 'b'}) == "ab");
  BOOST_TEST(tokenizer.id_bytes(256) == 0);
  BOOST_TEST(tokenizer.id_bytes(0) == 1);
  BOOST_CHECK_EXCEPTION(tokenizer.decode(std::vector<int32_t>{257}), ConfigError,
                        says("id 257 is outside the vocabulary of 257"));
  BOOST_CHECK_THROW(tokenizer.decode(std::vector<int32_t>{-1}), ConfigError);
}

BOOST_AUTO_TEST_CASE(byte_table_is_that_of_byte_level_bpe) {
  const auto& table = byte_level_alphabet();
  BOOST_TEST(table['A'] == "A");
  BOOST_TEST(table[0x00] == "\u0100");
  BOOST_TEST(table[0x0A] == "\u010A");
  BOOST_TEST(table[0x20] == "\u0120");
  BOOST_TEST(table[0x7F] == "\u0121");
  BOOST_TEST(table[0xA0] == "\u0142");
  BOOST_TEST(table[0xA1] == "\u00A1");
  BOOST_TEST(table[0xAD] == "\u0143");
  BOOST_TEST(table[0xFF] == "\u00FF");
}

BOOST_AUTO_TEST_CASE(loads_what_it_saved_by_file_and_by_folder) {
  const ScratchFolder dir;
  ByteTokenizer().save(dir.path());
  for (const std::string& path : {dir.path(), dir.path("tokenizer.json")}) {
    const auto loaded = load_tokenizer(path);
    BOOST_TEST(loaded->vocab_size() == 257);
    BOOST_TEST(loaded->decode(loaded->encode("x\xFF")) == "x\xFF");
  }
}

// Runs and checkpoints of earlier versions hold this file.
BOOST_AUTO_TEST_CASE(file_is_the_one_it_always_was) {
  const std::string text = ByteTokenizer().json_text();
  BOOST_TEST(text.size() == 2722u);
  BOOST_TEST(fnv1a(text) == 0x5d66c70260d79faau);
  BOOST_TEST(ByteTokenizer().exact());
}

BOOST_AUTO_TEST_SUITE_END()
