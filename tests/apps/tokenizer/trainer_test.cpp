// Training: which pairs merge, and that threads, order and memory do not change the file.
#include "apps/common/tokenizer/trainer.h"

#include <boost/test/unit_test.hpp>

#include "tensor/error.h"
#include "tests/apps/data_files.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

using Counted = std::vector<std::pair<std::string_view, uint64_t>>;

std::vector<std::string> trained_tokens(const Counted& pieces, int64_t merges,
                                        uint64_t min_frequency = 1) {
  std::vector<std::string> tokens;
  train_merges(pieces, 256 + merges, min_frequency, tokens);
  return {tokens.begin() + 256, tokens.end()};
}

using Tokens = std::vector<std::string>;

std::string sample(int document) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += ' ';
    for (int word = (i * i + 7 * document) % 997 + 20; word > 0; word /= 9)
      text += std::string(1, "bdgklmnrs"[word % 9]) + "aeiou"[word % 5];
    text += i % 11 == 0 ? ",\n" : "";
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trainer)

// Case 97: counts beyond 32 bits, signed and unsigned.
BOOST_AUTO_TEST_CASE(case_97_counts_are_64_bit) {
  BOOST_TEST(trained_tokens({{"ab", 3'000'000'000}, {"cd", 1000}}, 1) == Tokens{"ab"});
  BOOST_TEST(trained_tokens({{"ab", 5'000'000'000}, {"cd", 4'000'000'000}}, 2) ==
             (Tokens{"ab", "cd"}));
  BpeTrainer trainer({.vocab_size = 258, .style = TokenizerStyle::gpt2});
  trainer.add_piece("cd", 1000);
  for (int i = 0; i < 3; ++i) trainer.add_piece("ab", 3'000'000'000);
  BOOST_TEST(trainer.train()->id_text(256) == "ab");
}

BOOST_AUTO_TEST_CASE(ties_go_to_the_smallest_pair) {
  BOOST_TEST(trained_tokens({{"zy", 5}, {"cd", 5}, {"ca", 5}, {"\xFF\x01", 5}}, 4) ==
             (Tokens{"ca", "cd", "zy", "\xFF\x01"}));
}

BOOST_AUTO_TEST_CASE(merges_follow_the_counts_of_now) {
  // "ab" 9; then "abc" 6 beats "cd" (8 until "abc" took 2 of them with it).
  BOOST_TEST(trained_tokens({{"abc", 4}, {"abcd", 2}, {"ab", 3}, {"cd", 3}}, 3) ==
             (Tokens{"ab", "abc", "cd"}));
  BOOST_TEST(trained_tokens({{"aaaa", 2}}, 5) == (Tokens{"aa", "aaaa"}));
  BOOST_TEST(trained_tokens({{"aaa", 2}}, 5) == (Tokens{"aa", "aaa"}));
  BOOST_TEST(trained_tokens({{"ab", 2}, {"cd", 1}}, 5, 2) == Tokens{"ab"});
}

BOOST_AUTO_TEST_CASE(same_text_same_file_whatever_the_threads) {
  const auto train = [](int threads, bool reversed) {
    BpeTrainer trainer({.vocab_size = 600, .threads = threads});
    for (int i = 0; i < 30; ++i) trainer.add(sample(reversed ? 29 - i : i));
    return trainer.train()->json_text();
  };
  const std::string one = train(1, false);
  BOOST_TEST(one == train(4, false));
  BOOST_TEST(one == train(3, true));
}

BOOST_AUTO_TEST_CASE(a_bound_on_memory_forgets_rare_pieces_only) {
  PieceCounts counts;
  for (int i = 0; i < 1000; ++i) counts.add("rare" + std::to_string(i), 1);
  for (int i = 0; i < 100; ++i) counts.add("often" + std::to_string(i), 50);
  const int64_t before = counts.memory_bytes();
  counts.prune(before);
  BOOST_TEST(counts.sorted().size() == 1100u);
  counts.prune(before - 1);
  BOOST_TEST(counts.sorted().size() == 100u);
  BOOST_TEST(counts.memory_bytes() < before / 2);
  BOOST_TEST(counts.sorted().front().second == 50u);
}

BOOST_AUTO_TEST_CASE(trained_tokenizers_are_exact_and_shorter) {
  for (const char* style : {"gpt2", "llama3", "qwen"}) {
    BpeTrainer trainer({.vocab_size = 700, .style = tokenizer_style(style)});
    for (int i = 0; i < 10; ++i) trainer.add(sample(i));
    const auto tokenizer = trainer.train();
    BOOST_TEST(tokenizer->exact() == (std::string(style) != "qwen"));
    const auto ids = tokenizer->encode(sample(3));
    BOOST_TEST(tokenizer->decode(ids) == sample(3));
    BOOST_TEST(2 * ids.size() < sample(3).size());
    const ScratchFolder dir;
    tokenizer->save(dir.path());
    BOOST_TEST(load_tokenizer(dir.path())->encode(sample(3)) == ids);
  }
}

BOOST_AUTO_TEST_CASE(special_tokens_take_the_last_ids) {
  BpeTrainer trainer({.vocab_size = 300, .special_tokens = {"<a>", "<b>"}, .eod = "<b>"});
  trainer.add(sample(1));
  const auto tokenizer = trainer.train();
  BOOST_TEST(tokenizer->vocab_size() == 300);
  BOOST_TEST(tokenizer->find_token("<a>") == 298);
  BOOST_TEST(tokenizer->eod_id() == 299);
  BOOST_TEST(tokenizer->id_text(255) == "\xFF");
}

BOOST_AUTO_TEST_CASE(refusals) {
  const auto refused = [](const BpeTrainerOptions& options, const std::string& text) {
    BOOST_CHECK_EXCEPTION(BpeTrainer{options}, ConfigError, says(text));
  };
  refused({.vocab_size = 256}, "a vocabulary of 256 must be at least 257");
  refused({.vocab_size = int64_t{1} << 40}, "at most 4194304");
  refused({.min_frequency = 0}, "min_frequency 0 must be at least 1");
  refused({.special_tokens = {"<a>"}}, "no token ends a document");
  refused({.special_tokens = {"<a>"}, .eod = "<b>"}, "'<b>' as the option says");
  refused({.special_tokens = {"</s>", "a"}}, "allowed is 97");
  refused({.special_tokens = {"</s>", "</s>"}}, "no other added token has");
  BOOST_CHECK_EXCEPTION(tokenizer_style("bert"), ConfigError, says("must be gpt2, llama3 or qwen"));
  BpeTrainer empty({});
  BOOST_CHECK_EXCEPTION(empty.train(), RunError, says("there is no text"));
}

BOOST_AUTO_TEST_SUITE_END()
