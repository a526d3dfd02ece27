// The Megatron indexed dataset: exact bytes out, everything checked on the way in.
#include "apps/common/token_file.h"

#include <cstring>
#include <limits>

#include <boost/test/unit_test.hpp>

#include "tensor/error.h"
#include "tests/apps/data_files.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

// The index of two documents of 3 and 2 tokens in u16, byte for byte as the reference writes it.
std::string golden_index() {
  std::string bytes;
  for (const int b :
       {0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0,
        0,    0,    0,    0,    0,    3,    0,    0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
        0,    0,    0,    0,    0,    0,    0,    0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0,    0,    0,    1,    0,    0,    0,    0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}) {
    bytes.push_back(static_cast<char>(b));
  }
  return bytes;
}

template <typename T>
void put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(token_file)

BOOST_AUTO_TEST_CASE(writes_the_reference_index_byte_for_byte) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), {{1, 2, 3}, {4, 256}});
  BOOST_TEST(read_file(dir.path("d.idx")).size() == 82u);
  BOOST_TEST(read_file(dir.path("d.idx")) == golden_index());
  BOOST_TEST(read_file(dir.path("d.bin")) == std::string("\1\0\2\0\3\0\4\0\0\1", 10));
}

// Files of Megatron-LM's own builder (tests/interop/megatron_compare.py --golden).
BOOST_AUTO_TEST_CASE(files_of_megatron_are_read_and_written_byte_for_byte) {
  Documents documents{{5, 6, 7, 0}, {}, {0}, {35, 499, 1, 2, 3, 0}, std::vector<int32_t>(41, 9)};
  documents.back().back() = 0;
  const ScratchFolder dir;
  for (const std::string name : {"u16", "i32"}) {
    const std::string golden = join({SMELT_SOURCE_DIR, "/tests/golden/megatron/", name});
    const TokenFile file(golden);
    BOOST_TEST((file.type() == (name == "u16" ? TokenType::u16 : TokenType::i32)));
    BOOST_REQUIRE(file.documents() == int64_t(documents.size()));
    for (size_t d = 0; d < documents.size(); ++d) {
      std::vector<int32_t> ids(size_t(file.document_length(int64_t(d))));
      file.read(file.document_begin(int64_t(d)), ids);
      BOOST_TEST(ids == documents[d], boost::test_tools::per_element());
    }
    write_tokens(dir.path(name), documents, name == "u16" ? 500 : 200000);
    for (const char* end : {".bin", ".idx"})
      BOOST_TEST((read_file(dir.path(name + end)) == read_file(golden + end)), name << end);
  }
}

BOOST_AUTO_TEST_CASE(reads_what_it_wrote_in_both_widths) {
  const ScratchFolder dir;
  const Documents documents{{5, 6, 7, 8}, {}, {9}, {1, 0}};
  for (const int64_t vocab_size : {65499, 65500}) {
    write_tokens(dir.path("d"), documents, vocab_size);
    const TokenFile file(dir.path("d"));
    BOOST_TEST((file.type() == (vocab_size < 65500 ? TokenType::u16 : TokenType::i32)));
    BOOST_TEST(file.tokens() == 7);
    BOOST_TEST(file.documents() == 4);
    int64_t at = 0;
    for (int64_t d = 0; d < 4; ++d) {
      const auto& document = documents[static_cast<size_t>(d)];
      BOOST_TEST(file.document_begin(d) == at);
      BOOST_TEST(file.document_length(d) == static_cast<int64_t>(document.size()));
      for (const int32_t id : document) BOOST_TEST(file.token(at++) == id);
    }
    BOOST_TEST(file.document_begin(4) == 7);
    std::vector<int32_t> some(3);
    file.read(3, some);
    BOOST_TEST(some == (std::vector<int32_t>{8, 9, 1}), boost::test_tools::per_element());
    BOOST_CHECK_THROW(file.read(5, some), IoError);
    BOOST_CHECK_THROW(file.read(-1, some), IoError);
  }
}

BOOST_AUTO_TEST_CASE(reads_one_byte_tokens_and_documents_of_several_sequences) {
  const ScratchFolder dir;
  std::string index = golden_index();
  put<uint8_t>(index, 17, 1);
  put<uint64_t>(index, 26, 2);  // one document ...
  put<int64_t>(index, 50, 3);   // ... whose second sequence starts at byte 3
  put<int64_t>(index, 66, 2);   // ... and which holds both
  write_file(dir.path("d.idx"), index.substr(0, 74));
  write_file(dir.path("d.bin"), "\1\2\xff\4\5");
  const TokenFile file(dir.path("d"));
  BOOST_TEST(file.documents() == 1);
  BOOST_TEST(file.document_length(0) == 5);
  BOOST_TEST(file.token(2) == 255);
}

BOOST_AUTO_TEST_CASE(opens_a_file_without_documents) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), {});
  const TokenFile file(dir.path("d"));
  BOOST_TEST(file.tokens() == 0);
  BOOST_TEST(file.documents() == 0);
  BOOST_CHECK_NO_THROW(file.check_ids(1));
}

BOOST_AUTO_TEST_CASE(refuses_damaged_files_and_says_why) {
  struct Damage {
    const char* says;
    std::function<void(std::string& index, std::string& tokens)> apply;
  };
  const std::vector<Damage> damages{
      {"does not start with MMIDIDX", [](auto& i, auto&) { i[0] = 'X'; }},
      {"version 2 is not supported", [](auto& i, auto&) { put<uint64_t>(i, 9, 2); }},
      {"dtype code 7 is not supported", [](auto& i, auto&) { put<uint8_t>(i, 17, 7); }},
      {"do not fit 3 sequences", [](auto& i, auto&) { put<uint64_t>(i, 18, 3); }},
      // 2^61 sequences of 12 bytes and 2^64 - 1 boundaries wrap around in 64 bits.
      {"do not fit 2305843009213693952",
       [](auto& i, auto&) { put<uint64_t>(i, 18, uint64_t{1} << 61); }},
      {"18446744073709551615 document boundaries",
       [](auto& i, auto&) { put<uint64_t>(i, 26, std::numeric_limits<uint64_t>::max()); }},
      {"83 bytes do not fit", [](auto& i, auto&) { i += 'x'; }},
      {"negative length -1", [](auto& i, auto&) { put<int32_t>(i, 34, -1); }},
      {"sequence 1 starts at byte 4, expected 6", [](auto& i, auto&) { put<int64_t>(i, 50, 4); }},
      {"document boundary 0 is 1, expected 0", [](auto& i, auto&) { put<int64_t>(i, 58, 1); }},
      {"document boundary 1 is 3", [](auto& i, auto&) { put<int64_t>(i, 66, 3); }},
      {"document boundary 1 is -1", [](auto& i, auto&) { put<int64_t>(i, 66, -1); }},
      {"last document boundary is 1, expected 2", [](auto& i, auto&) { put<int64_t>(i, 74, 1); }},
      {"8 bytes, but its index describes 5 tokens", [](auto&, auto& t) { t.resize(8); }},
      {"11 bytes, but its index describes 5 tokens", [](auto&, auto& t) { t.resize(11); }},
  };
  const ScratchFolder dir;
  for (const Damage& damage : damages) {
    BOOST_TEST_CONTEXT(damage.says) {
      std::string index = golden_index(), tokens(10, '\0');
      damage.apply(index, tokens);
      write_file(dir.path("d.idx"), index);
      write_file(dir.path("d.bin"), tokens);
      BOOST_CHECK_EXCEPTION(TokenFile(dir.path("d")), IoError, says(damage.says));
      BOOST_CHECK_EXCEPTION(TokenFile(dir.path("d")), IoError, says(dir.path("d")));
    }
  }
  write_file(dir.path("d.bin"), std::string(10, '\0'));
  for (size_t length = 0; length < 82; ++length) {
    write_file(dir.path("d.idx"), golden_index().substr(0, length));
    BOOST_CHECK_THROW(TokenFile(dir.path("d")), IoError);
  }
  BOOST_CHECK_EXCEPTION(TokenFile(dir.path("none")), IoError, says("none.idx: cannot read"));
}

// Case 52: offsets of 64 bits, also beyond 2^31 elements and 2^32 bytes.
BOOST_AUTO_TEST_CASE(case_52_offsets_do_not_wrap) {
  BOOST_TEST(byte_offset(42690, 50304) == 2147477760);
  BOOST_TEST(byte_offset(42691, 50304) == 2147528064);

  const ScratchFolder dir;
  const int64_t first = std::numeric_limits<int32_t>::max(), second = 100;
  std::string index = golden_index();
  put<int32_t>(index, 34, std::numeric_limits<int32_t>::max());
  put<int32_t>(index, 38, static_cast<int32_t>(second));
  put<int64_t>(index, 50, first * 2);
  write_file(dir.path("d.idx"), index);
  {
    std::ofstream bin(dir.path("d.bin"), std::ios::binary);  // sparse: only the end is stored
    bin.seekp((first + second - 1) * 2);
    bin.write("\x34\x12", 2);
  }
  const TokenFile file(dir.path("d"));
  BOOST_TEST(file.tokens() == first + second);
  BOOST_TEST(file.document_begin(1) == first);
  BOOST_TEST(file.token(first + second - 1) == 0x1234);
  BOOST_TEST(file.token(first) == 0);
}

BOOST_AUTO_TEST_CASE(names_the_first_id_outside_the_vocabulary) {
  const ScratchFolder dir;
  std::vector<int32_t> ids(10000, 3);
  ids[5001] = 300;
  ids[9000] = 400;
  write_tokens(dir.path("d"), {ids}, 1000);
  const TokenFile file(dir.path("d"));
  BOOST_CHECK_NO_THROW(file.check_ids(401));
  BOOST_CHECK_EXCEPTION(file.check_ids(300), IoError, says("token 5001 has id 300"));
  BOOST_CHECK_EXCEPTION(file.check_ids(400), IoError, says("token 9000 has id 400"));
}

BOOST_AUTO_TEST_CASE(names_a_negative_id) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), {{1, 2, 3}}, 70000);
  std::string bytes = read_file(dir.path("d.bin"));
  put<int32_t>(bytes, 4, -5);
  write_file(dir.path("d.bin"), bytes);
  BOOST_CHECK_EXCEPTION(TokenFile(dir.path("d")).check_ids(70000), IoError,
                        says("token 1 has id -5"));
}

BOOST_AUTO_TEST_CASE(writer_refuses_ids_outside_the_vocabulary) {
  const ScratchFolder dir;
  TokenFileWriter writer(dir.path("d"), 257);
  BOOST_CHECK_EXCEPTION(writer.append(std::vector<int32_t>{1, 257}), IoError, says("id 257 at 1"));
  BOOST_CHECK_EXCEPTION(writer.append(std::vector<int32_t>{-1}), IoError, says("id -1"));
  BOOST_CHECK_EXCEPTION(TokenFileWriter(dir.path("no/d"), 257), IoError, says("cannot create"));
}

BOOST_AUTO_TEST_CASE(an_unfinished_writer_leaves_the_old_files_as_they_were) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), {{1, 2, 3}});
  {
    TokenFileWriter writer(dir.path("d"), 257);
    writer.append(std::vector<int32_t>{7, 8});
    BOOST_TEST(writer.tokens() == 2);
  }
  BOOST_TEST(TokenFile(dir.path("d")).tokens() == 3);
  BOOST_TEST(!std::filesystem::exists(dir.path("d.bin.tmp")));
  BOOST_TEST(!std::filesystem::exists(dir.path("d.idx.tmp")));
}

BOOST_AUTO_TEST_SUITE_END()
