// Damaged and crafted safetensors files and indexes: each must be refused with a line that names
// the file and the fault, and before anything large is allocated (cases 88 to 91).
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include <boost/test/unit_test.hpp>

#include "apps/common/safetensors.h"
#include "tensor/allocator.h"
#include "tests/apps/safetensors_bytes.h"
#include "tests/apps/scratch_folder.h"

namespace {
std::atomic<size_t> largest_allocation{0};
}

// Every allocation of this program passes here, so that a test can see the largest. Not inlined:
// g++ 12 then takes malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  if (size > largest_allocation) largest_allocation = size;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void* operator new(size_t size) {
  void* block = operator new(size, std::nothrow);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, const std::nothrow_t&) noexcept {
  std::free(block);
}
[[gnu::noinline]] void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace smelt::testing {
namespace {

struct Hostile {
  const char* name;
  std::string bytes;
  const char* says;  // part of the error; nullptr when the file is legal
};

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}}";
}

std::string two(const std::string& first, const std::string& second) {
  return "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + first +
         "},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + second + "}}";
}

std::string repeat(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

const std::string kGood = one("\"F32\"", "[1]", "[0,4]");
const std::string kField = "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}";
const std::string kNext = "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}";

std::vector<Hostile> hostile_files() {
  return {
      // 88: the header's length, and its text.
      {"empty file", "", "0 bytes"},
      {"seven bytes", "1234567", "7 bytes"},
      {"length of all ones", u64(~0ull), "header size 18446744073709551615"},
      {"length 2^40", u64(1ull << 40) + std::string(92, ' '), "header size 1099511627776"},
      {"length 2^63", u64(1ull << 63) + std::string(92, ' '), "header size 9223372036854775808"},
      {"length of the whole file", u64(8 + kGood.size() + 4) + kGood + "0123", "header size"},
      {"no header", u64(0), "not valid JSON"},
      {"array", file_bytes("[]", 0), "found an array; must be an object"},
      {"null", file_bytes("null", 0), "found null"},
      {"true", file_bytes("true", 0), "found a boolean"},
      {"number", file_bytes("17", 0), "found number 17"},
      {"string", file_bytes("\"F32\"", 0), "found string"},
      {"open brace", file_bytes("{", 0), "not valid JSON"},
      {"open string", file_bytes("{\"a", 0), "not valid JSON"},
      {"two objects", file_bytes("{}{}", 0), "after the end of the JSON"},
      {"zeros after the header", file_bytes("{}" + std::string(6, '\0'), 0), "after the end"},
      {"comment", file_bytes("{}/* */", 0), "after the end"},
      {"trailing comma", file_bytes(kGood.substr(0, kGood.size() - 1) + ",}", 4), "not valid"},
      {"not UTF-8", file_bytes("{\"\xff\":" + kField + "}", 4), "not valid JSON"},
      {"surrogate alone", file_bytes("{\"\\ud800\":" + kField + "}", 4), "not valid JSON"},
      {"byte order mark", file_bytes("\xef\xbb\xbf" + kGood, 4), "not valid JSON"},
      {"deep nesting", file_bytes(repeat("{\"a\":", 100000), 0), "found an unknown key"},
      {"deep array", file_bytes("{\"a\":{\"shape\":" + repeat("[", 100000), 0), "an array"},
      {"spaces after the JSON", file_bytes(kGood + std::string(40, ' '), 4), nullptr},
      {"white space before it", file_bytes("\n\t " + kGood, 4), nullptr},

      // 89: what the offsets cover.
      {"overlap", file_bytes(two("[0,4]", "[2,6]"), 6), "neither overlap nor leave holes"},
      {"same bytes twice", file_bytes(two("[0,4]", "[0,4]"), 4), "neither overlap"},
      {"hole", file_bytes(two("[0,4]", "[8,12]"), 12), "neither overlap nor leave holes"},
      {"hole in front", file_bytes(one("\"F32\"", "[1]", "[4,8]"), 8), "begin at 4"},
      {"backwards", file_bytes(two("[0,4]", "[4,0]"), 4), "must not run backwards"},
      {"past the end", file_bytes(two("[0,4]", "[4,8]"), 7), "holds 7 bytes of data"},
      {"no data at all", file_bytes(one("\"U8\"", "[1099511627776]", "[0,1099511627776]"), 0),
       "holds 0 bytes of data"},
      {"bytes after the last tensor", file_bytes(kGood, 8), "4 bytes after the last tensor"},
      {"bytes without a tensor", file_bytes("{}", 1), "1 bytes after the last tensor"},
      {"reverse order", file_bytes(two("[4,8]", "[0,4]"), 8), nullptr},

      // 90: shape, dtype and span.
      {"span too small", file_bytes(one("\"F32\"", "[2,2]", "[0,8]"), 8), "takes 16"},
      {"product wraps", file_bytes(one("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0),
       "too large"},
      {"product wraps before a zero",
       file_bytes(one("\"F32\"", "[4294967296,4294967296,0]", "[0,0]"), 0), "too large"},
      {"bits wrap", file_bytes(one("\"F64\"", "[288230376151711744]", "[0,0]"), 0), "too large"},
      {"negative dimension", file_bytes(one("\"F32\"", "[-1]", "[0,4]"), 4), "number -1 in"},
      {"minus zero", file_bytes(one("\"F32\"", "[-0]", "[0,0]"), 0), "number -0 in"},
      {"fraction", file_bytes(one("\"F32\"", "[1.0]", "[0,4]"), 4), "number 1.0 in"},
      {"exponent", file_bytes(one("\"F32\"", "[1e0]", "[0,4]"), 4), "number 1e0 in"},
      {"2^63", file_bytes(one("\"F32\"", "[9223372036854775808]", "[0,4]"), 4), "an integer"},
      {"2^64", file_bytes(one("\"F32\"", "[18446744073709551616]", "[0,4]"), 4), "an integer"},
      {"dimension as text", file_bytes(one("\"F32\"", "[\"1\"]", "[0,4]"), 4), "integers only"},
      {"nested shape", file_bytes(one("\"F32\"", "[[1]]", "[0,4]"), 4), "integers only"},
      {"shape as number", file_bytes(one("\"F32\"", "1", "[0,4]"), 4), "a list of integers"},
      {"null shape", file_bytes(one("\"F32\"", "null", "[0,4]"), 4), "a list of integers"},
      {"unknown dtype", file_bytes(one("\"F33\"", "[1]", "[0,4]"), 4), "\"F33\" in"},
      {"dtype in small letters", file_bytes(one("\"f32\"", "[1]", "[0,4]"), 4), "must be a dtype"},
      {"empty dtype", file_bytes(one("\"\"", "[1]", "[0,4]"), 4), "must be a dtype"},
      {"dtype as number", file_bytes(one("32", "[1]", "[0,4]"), 4), "must be a string"},
      {"one offset", file_bytes(one("\"F32\"", "[1]", "[0]"), 4), "two data_offsets"},
      {"three offsets", file_bytes(one("\"F32\"", "[1]", "[0,4,4]"), 4), "a third number"},
      {"half a byte", file_bytes(one("\"F4\"", "[3]", "[0,2]"), 2), "whole bytes"},
      {"seventeen dimensions",
       file_bytes(one("\"F32\"", "[1" + repeat(",1", 16) + "]", "[0,4]"), 4), "16 dimensions"},
      {"no dtype", file_bytes("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
       "must have dtype"},
      {"no shape", file_bytes("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4),
       "must have"},
      {"no offsets", file_bytes("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4), "must have"},
      {"tensor as list", file_bytes("{\"a\":[]}", 0), "an object for a tensor"},
      {"field of no meaning",
       file_bytes("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4),
       "dtype, shape or data_offsets"},
      {"zero dimension", file_bytes(one("\"F32\"", "[0]", "[0,0]"), 0), nullptr},
      {"scalar", file_bytes(one("\"F32\"", "[]", "[0,4]"), 4), nullptr},
      {"three of BF16", file_bytes(one("\"BF16\"", "[3]", "[0,6]"), 6), nullptr},
      {"two halves of a byte", file_bytes(one("\"F4\"", "[2]", "[0,1]"), 1), nullptr},
      {"sixteen dimensions", file_bytes(one("\"F32\"", "[1" + repeat(",1", 15) + "]", "[0,4]"), 4),
       nullptr},

      // 91: keys and names.
      {"same tensor twice", file_bytes("{\"a\":" + kField + ",\"a\":" + kNext + "}", 8),
       "key \"a\" occurs twice"},
      {"same after decoding", file_bytes("{\"a\":" + kField + ",\"\\u0061\":" + kNext + "}", 8),
       "key \"a\" occurs twice"},
      {"dtype twice",
       file_bytes("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],"
                  "\"data_offsets\":[0,4]}}",
                  4),
       "key \"dtype\" occurs twice in \"a\""},
      {"metadata twice", file_bytes("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
       "key \"__metadata__\" occurs twice"},
      {"metadata key twice", file_bytes("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0),
       "key \"k\" occurs twice"},
      {"tensor called __metadata__", file_bytes("{\"__metadata__\":" + kField + "}", 4),
       "in \"__metadata__\".\"shape\""},
      {"metadata of numbers", file_bytes("{\"__metadata__\":{\"k\":1}}", 0), "must be a string"},
      {"metadata as text", file_bytes("{\"__metadata__\":\"pt\"}", 0), "an object of strings"},
      {"zero byte in a name", file_bytes("{\"a\\u0000b\":" + kField + "}", 4), "zero byte"},
      {"very long name", file_bytes("{\"" + repeat("n", 1025) + "\":" + kField + "}", 4),
       "longer than 1024"},
      {"new line in a name", file_bytes("{\"a\\nb\":{}}", 0), "\"a\\nb\""},
      {"longest name", file_bytes("{\"" + repeat("n", 1024) + "\":" + kField + "}", 4), nullptr},
  };
}

bool says(const std::exception& error, const std::filesystem::path& path, const std::string& part) {
  const std::string text = error.what();
  BOOST_TEST(text.find(path.filename().string()) != std::string::npos, text);
  BOOST_TEST(text.find('\n') == std::string::npos, text);
  BOOST_TEST(text.size() < 1000, text);
  BOOST_TEST(text.find(part) != std::string::npos, "\"" << text << "\" lacks \"" << part << "\"");
  return true;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(safetensors_hostile)

BOOST_AUTO_TEST_CASE(refuses_every_damaged_file_without_a_big_allocation) {
  const ScratchFolder scratch;
  for (const Hostile& file : hostile_files()) {
    BOOST_TEST_CONTEXT(file.name) {
      const auto path = write_file(scratch / "x.safetensors", file.bytes);
      const size_t tensor_requests = size_t(allocator().stats().requests);
      largest_allocation = 0;
      if (file.says == nullptr) {
        BOOST_CHECK_EQUAL(SafetensorsFile(path).names().size(),
                          file.bytes.find("\"b\"") == std::string::npos ? 1u : 2u);
        continue;
      }
      BOOST_CHECK_EXCEPTION(SafetensorsFile{path}, IoError,
                            [&](const auto& e) { return says(e, path, file.says); });
      BOOST_TEST(largest_allocation.load() <= std::max(file.bytes.size() + 64, size_t(4096)));
      BOOST_TEST(size_t(allocator().stats().requests) == tensor_requests);
    }
  }
}

BOOST_AUTO_TEST_CASE(refuses_a_sparse_file_with_a_header_above_the_limit) {
  const ScratchFolder scratch;
  const auto path = write_file(scratch / "x.safetensors", u64(100'000'001));
  std::filesystem::resize_file(path, 200'000'000);
  largest_allocation = 0;
  BOOST_CHECK_EXCEPTION(SafetensorsFile{path}, IoError, [&](const auto& e) {
    return says(e, path, "header size 100000001 must be at most 100000000");
  });
  BOOST_TEST(largest_allocation.load() < 100'000u);
}

BOOST_AUTO_TEST_CASE(refuses_what_is_not_a_file) {
  const ScratchFolder scratch;
  BOOST_CHECK_THROW(SafetensorsFile{scratch.path()}, IoError);
  BOOST_CHECK_THROW(SafetensorsFile{scratch / "missing"}, IoError);
  BOOST_REQUIRE_EQUAL(std::system(("mkfifo " + (scratch / "pipe").string()).c_str()), 0);
  BOOST_CHECK_THROW(SafetensorsFile{scratch / "pipe"}, IoError);  // and does not wait for a writer
}

BOOST_AUTO_TEST_CASE(a_file_cut_after_opening_is_an_error) {
  const ScratchFolder scratch;
  const auto path = write_file(scratch / "x.safetensors", file_bytes(kGood, 4));
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 8 + kGood.size() + 2);
  BOOST_CHECK_EXCEPTION(file.read("a"), IoError,
                        [&](const auto& e) { return says(e, path, "was cut"); });
}

BOOST_AUTO_TEST_CASE(no_mutation_of_a_valid_file_crashes_the_reader) {
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
      "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[24,28]},"
      "\"c\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[28,30]},"
      "\"d\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[30,30]}}    ";
  const std::string good = file_bytes(header, 30);
  const ScratchFolder scratch;
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return size_t(random() % n); };
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    if (i % 4 == 0) {
      bytes.resize(below(bytes.size()));
    } else if (i % 4 == 1) {  // one character for another that means something
      bytes[8 + below(header.size())] = "0123456789[]{},:\"-.eE\\u"[below(23)];
    } else {
      for (size_t flips = 1 + below(3); flips > 0; --flips) {
        bytes[below(bytes.size())] ^= char(1u << below(8));
      }
    }
    const auto path = write_file(scratch / "x.safetensors", bytes);
    largest_allocation = 0;
    BOOST_TEST_CONTEXT("mutation " << i) {
      try {
        const SafetensorsFile file(path);
        for (const std::string& name : file.names()) {
          try {
            BOOST_TEST(file.read(name).numel() <= 30);
          } catch (const IoError&) {  // a dtype that we do not read
          }
        }
      } catch (const IoError&) {
        ++refused;
      }
      BOOST_TEST(largest_allocation.load() < 65536u);
    }
  }
  BOOST_TEST(refused > 1000);
  BOOST_TEST(refused < 2000);  // flips in the values and in the metadata are not seen
}

BOOST_AUTO_TEST_CASE(refuses_every_damaged_index) {
  const std::string a = file_bytes(kGood, 4);
  const std::string b = file_bytes("{\"b\":" + kField + "}", 4);
  const std::string ab = file_bytes(two("[0,4]", "[4,8]"), 8);
  const auto map = [](const std::string& text) {
    return "{\"metadata\":{\"total_size\":8},\"weight_map\":{" + text + "}}";
  };
  struct Case {
    const char* name;
    std::string index;
    std::string second;  // content of 2.safetensors
    const char* says;
  };
  const std::string legal = map("\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"");
  const std::vector<Case> cases = {
      {"legal", legal, b, nullptr},
      {"other keys", std::string("{\"x\":[{\"y\":[1.5,null,true,\"z\"]}],").append(legal, 1), b,
       nullptr},
      {"no metadata", std::string("{").append(legal, legal.find("\"weight_map")), b, nullptr},
      {"folder above", map("\"a\":\"../1.safetensors\""), b, "a plain file name"},
      {"absolute", map("\"a\":\"/etc/passwd\""), b, "a plain file name"},
      {"subfolder", map("\"a\":\"s/1.safetensors\""), b, "a plain file name"},
      {"backslash", map("\"a\":\"s\\\\1.safetensors\""), b, "a plain file name"},
      {"dots inside", map("\"a\":\"1..safetensors\""), b, "a plain file name"},
      {"hidden", map("\"a\":\".safetensors\""), b, "a plain file name"},
      {"empty name", map("\"a\":\"\""), b, "a plain file name"},
      {"zero byte", map("\"a\":\"1.safetensors\\u0000\""), b, "a plain file name"},
      {"number as file", map("\"a\":1"), b, "a file name"},
      {"null as file", map("\"a\":null"), b, "a file name"},
      {"list as file", map("\"a\":[\"1.safetensors\"]"), b, "a file name"},
      {"object as file", map("\"a\":{\"b\":\"1.safetensors\"}"), b, "a file name"},
      {"list as map", "{\"weight_map\":[]}", b, "an object of file names"},
      {"text as map", "{\"weight_map\":\"1.safetensors\"}", b, "an object of file names"},
      {"no map", "{\"metadata\":{}}", b, "no weight_map"},
      {"list", "[]", b, "an object with weight_map"},
      {"cut", legal.substr(0, legal.size() - 1), b, "not valid JSON"},
      {"empty", "", b, "not valid JSON"},
      {"two values", legal + legal, b, "after the end"},
      {"key twice", map("\"a\":\"1.safetensors\",\"a\":\"2.safetensors\""), b, "occurs twice"},
      {"missing shard", map("\"a\":\"3.safetensors\""), b, "3.safetensors: cannot open"},
      {"mapped but missing", map("\"a\":\"1.safetensors\",\"c\":\"2.safetensors\""), b,
       "\"c\" is mapped to 2.safetensors"},
      {"mapped to the other shard", map("\"a\":\"2.safetensors\",\"b\":\"1.safetensors\""), b,
       "\"a\" is mapped to 2.safetensors"},
      {"unmapped", map("\"b\":\"2.safetensors\""), ab, "\"a\" is not in the weight_map"},
      {"in two shards", legal, ab, "is also in 1.safetensors"},
      {"damaged shard", legal, b.substr(0, b.size() - 1), "2.safetensors"},
  };
  for (const Case& c : cases) {
    BOOST_TEST_CONTEXT(c.name) {
      const ScratchFolder scratch;
      write_file(scratch / "1.safetensors", a);
      write_file(scratch / "2.safetensors", c.second);
      write_file(scratch / "model.safetensors.index.json", c.index);
      if (c.says == nullptr) {
        BOOST_TEST(SafetensorsFolder(scratch.path()).names().size() == 2u);
      } else {
        BOOST_CHECK_EXCEPTION(SafetensorsFolder{scratch.path()}, IoError,
                              [&](const auto& e) { return says(e, "safetensors", c.says); });
      }
    }
  }
  BOOST_CHECK_THROW(SafetensorsFolder(ScratchFolder().path()), IoError);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace smelt::testing
