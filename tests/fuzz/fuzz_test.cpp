// The fuzz targets without a fuzzer: their seeds, and mutations of them that are the same every
// time.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tensor/rng.h"
#include "tests/apps/data_files.h"

extern "C" int fuzz_index(const uint8_t* data, size_t size);
extern "C" int fuzz_model_json(const uint8_t* data, size_t size);
extern "C" int fuzz_pattern(const uint8_t* data, size_t size);
extern "C" int fuzz_safetensors(const uint8_t* data, size_t size);
extern "C" int fuzz_text_source(const uint8_t* data, size_t size);
extern "C" int fuzz_token_file(const uint8_t* data, size_t size);
extern "C" int fuzz_tokenizer(const uint8_t* data, size_t size);

using namespace smelt;

namespace {

namespace fs = std::filesystem;

struct Target {
  std::string name;
  std::function<int(const uint8_t*, size_t)> run;
};
std::ostream& operator<<(std::ostream& out, const Target& target) { return out << target.name; }

const std::vector<Target> kTargets = {
    {"index", fuzz_index},
    {"model_json", fuzz_model_json},
    {"pattern", fuzz_pattern},
    {"safetensors", fuzz_safetensors},
    {"text_source", fuzz_text_source},
    {"token_file", fuzz_token_file},
    {"tokenizer", fuzz_tokenizer},
};
constexpr int kMutations = 400;

std::vector<std::string> seeds_of(const Target& target) {
  std::vector<std::string> paths, seeds;
  for (const auto& entry :
       fs::directory_iterator(std::string(SMELT_SOURCE_DIR) + "/tests/fuzz/corpus/" + target.name))
    paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) seeds.push_back(testing::read_file(path));
  return seeds;
}

/// A few bytes changed, a stretch removed, repeated, or taken from another seed.
std::string mutated(const std::vector<std::string>& seeds, uint64_t number) {
  const Random random(5, "tests/fuzz");
  uint64_t drawn = number * 64;
  const auto draw = [&](uint64_t below) {
    return random.below(drawn++, std::max<uint64_t>(below, 1));
  };
  std::string text = seeds[draw(seeds.size())];
  for (uint64_t changes = 1 + draw(4); changes > 0; --changes) {
    const size_t at = draw(text.size()), length = std::min<size_t>(draw(40), text.size() - at);
    const std::string& other = seeds[draw(seeds.size())];
    switch (draw(5)) {
      case 0:
        text.insert(at, 1, static_cast<char>(draw(256)));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, other.substr(draw(other.size()), length));
        break;
      default:
        if (!text.empty()) text[at] = "0123456789-{}[]\",:ne\xFF\0"[draw(22)];
    }
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fuzz)

BOOST_DATA_TEST_CASE(seeds_and_mutations_of_them, boost::unit_test::data::make(kTargets), target) {
  const auto seeds = seeds_of(target);
  BOOST_TEST_REQUIRE(!seeds.empty());
  const auto run = [&](const std::string& text) {
    return target.run(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  for (const std::string& seed : seeds) BOOST_TEST(run(seed) == 0);
  for (uint64_t i = 0; i < kMutations; ++i)
    BOOST_TEST_CONTEXT("mutation " << i) BOOST_TEST(run(mutated(seeds, i)) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
