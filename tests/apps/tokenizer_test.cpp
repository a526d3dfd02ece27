// The byte tokenizer: exact for every byte string, and no special id out of text.
#include "apps/common/tokenizer/bpe_tokenizer.h"

#include <boost/test/unit_test.hpp>

#include "tensor/error.h"
#include "tests/apps/data_files.h"

using namespace smelt;
using namespace smelt::testing;

BOOST_AUTO_TEST_SUITE(tokenizer)

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

BOOST_AUTO_TEST_CASE(refuses_what_it_does_not_implement) {
  const ScratchFolder dir;
  ByteTokenizer().save(dir.path());
  const std::string good = read_file(dir.path("tokenizer.json"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    BOOST_REQUIRE(at != std::string::npos);
    write_file(dir.path("t.json"), text.replace(at, from.size(), to));
    return dir.path("t.json");
  };
  // A real BPE model, another order of the bytes, another end token, a normalizer.
  BOOST_CHECK_THROW(load_tokenizer(with("\"merges\":[]", "\"merges\":[[\"a\",\"b\"]]")),
                    ConfigError);
  BOOST_CHECK_THROW(load_tokenizer(with("\"A\":65", "\"A\":66")), ConfigError);
  BOOST_CHECK_THROW(load_tokenizer(with("\"id\":256", "\"id\":300")), ConfigError);
  BOOST_CHECK_THROW(
      load_tokenizer(with("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}")),
      ConfigError);
  BOOST_CHECK_EXCEPTION(load_tokenizer(with("{", "[")), IoError, says("not valid JSON"));
  BOOST_CHECK_EXCEPTION(load_tokenizer(dir.path("none.json")), IoError, says("cannot read"));
  write_file(dir.path("t.json"), "[1]");
  BOOST_CHECK_EXCEPTION(load_tokenizer(dir.path("t.json")), IoError, says("JSON object"));
}

BOOST_AUTO_TEST_SUITE_END()
