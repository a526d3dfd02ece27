// Windows, blending, order and resume.
#include "apps/common/dataset.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <boost/test/unit_test.hpp>

#include "tensor/error.h"
#include "tests/apps/data_files.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

constexpr int32_t kEod = 256;

DatasetConfig make_config(std::vector<DomainSource> domains, int64_t seq_len, uint64_t seed = 1) {
  return {.domains = std::move(domains),
          .seq_len = seq_len,
          .vocab_size = 257,
          .eod_id = kEod,
          .document_mask = true,
          .seed = seed};
}

EvalDataset open_eval(const std::string& prefix, int64_t seq_len, bool document_mask = true) {
  return EvalDataset({.name = "d",
                      .prefix = prefix,
                      .seq_len = seq_len,
                      .vocab_size = 257,
                      .eod_id = kEod,
                      .document_mask = document_mask});
}

// Shards of unequal length: 3, 5 and 9 windows of 4.
std::vector<DomainSource> three_shards(const ScratchFolder& dir) {
  std::vector<DomainSource> sources;
  for (const int32_t windows : {3, 5, 9}) {
    const std::string name = join({"shard", std::to_string(windows)});
    write_tokens(dir.path(name), counting(windows * 4 + 2));
    sources.push_back({name, dir.path(name)});
  }
  return sources;
}

using Ids = std::vector<int32_t>;
constexpr auto each = boost::test_tools::per_element();

}  // namespace

BOOST_AUTO_TEST_SUITE(dataset)

// Case 83: targets are the tokens shifted once.
BOOST_AUTO_TEST_CASE(case_83_targets_follow_their_tokens) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), counting(9));
  const EvalDataset data = open_eval(dir.path("d"), 4);
  BOOST_TEST(data.sequences() == 2);
  BOOST_TEST(data.sample(0).tokens == (Ids{0, 1, 2, 3}), each);
  BOOST_TEST(data.sample(0).targets == (Ids{1, 2, 3, 4}), each);
  BOOST_TEST(data.sample(1).tokens == (Ids{4, 5, 6, 7}), each);
  BOOST_TEST(data.sample(1).targets == (Ids{5, 6, 7, 8}), each);

  const BlendedDataset train(make_config({{"d", dir.path("d")}}, 4));
  std::set<Ids> seen;
  for (int64_t i = 0; i < 2; ++i) {
    const Sample sample = train.sample(i);
    seen.insert(sample.tokens);
    for (size_t t = 0; t < 4; ++t) BOOST_TEST(sample.targets[t] == sample.tokens[t] + 1);
  }
  BOOST_TEST((seen == std::set<Ids>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

// Case 82: nothing dropped in evaluation, dropped tokens counted in training.
BOOST_AUTO_TEST_CASE(case_82_evaluation_scores_every_target_once) {
  const ScratchFolder dir;
  for (const int32_t tokens : {10, 7, 9, 2, 5}) {
    write_tokens(dir.path("d"), counting(tokens));
    const EvalDataset data = open_eval(dir.path("d"), 4);
    Ids scored;
    for (int64_t i = 0; i < data.sequences(); ++i) {
      const Sample sample = data.sample(i);
      BOOST_TEST(!sample.tokens.empty());
      scored.insert(scored.end(), sample.targets.begin(), sample.targets.end());
    }
    Ids expected = counting(tokens).front();
    expected.erase(expected.begin());
    BOOST_TEST(scored == expected, each);
  }
}

BOOST_AUTO_TEST_CASE(case_82_any_number_of_readers_covers_everything) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), counting(39));  // 10 sequences of 4, the last with 2 targets
  const EvalDataset data = open_eval(dir.path("d"), 4);
  for (const int64_t readers : {1, 3, 4}) {
    int64_t targets = 0;
    for (int64_t r = 0; r < readers; ++r) {
      const int64_t first = data.sequences() * r / readers;
      const int64_t last = data.sequences() * (r + 1) / readers;
      targets += data.batch(first, last - first).target_count();
    }
    BOOST_TEST(targets == 38);
  }
}

BOOST_AUTO_TEST_CASE(case_82_training_reports_what_it_drops) {
  const ScratchFolder dir;
  write_tokens(dir.path("a"), counting(10));
  write_tokens(dir.path("b"), counting(7));
  const BlendedDataset data(make_config({{"a", dir.path("a")}, {"b", dir.path("b")}}, 4));
  BOOST_TEST(data.domains()[0].windows == 2);
  BOOST_TEST(data.domains()[0].dropped_tokens == 1);
  BOOST_TEST(data.domains()[1].windows == 1);
  BOOST_TEST(data.domains()[1].dropped_tokens == 2);
  BOOST_TEST(data.domains()[0].tokens == 10);
}

BOOST_AUTO_TEST_CASE(evaluation_batches_pad_the_short_sequence) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), counting(8));
  const EvalDataset data = open_eval(dir.path("d"), 4);
  const Batch batch = data.batch(0, 2);
  BOOST_TEST(batch.batch == 2);
  BOOST_TEST(batch.seq_len == 4);
  BOOST_TEST(batch.tokens == (Ids{0, 1, 2, 3, 4, 5, 6, 0}), each);
  BOOST_TEST(batch.targets == (Ids{1, 2, 3, 4, 5, 6, 7, kNoTarget}), each);
  BOOST_TEST(batch.document_start == (Ids{0, 0, 0, 0, 0, 0, 0, 3}), each);
  BOOST_TEST(batch.target_count() == 7);
  BOOST_CHECK_THROW(data.batch(1, 2), ConfigError);
  BOOST_CHECK_THROW(data.sample(2), ConfigError);
}

BOOST_AUTO_TEST_CASE(document_mask_hides_targets_across_documents) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), {{1, 2, kEod}, {kEod}, {3, 4, 5, kEod}, {6}});
  const Sample masked = open_eval(dir.path("d"), 8).sample(0);
  BOOST_TEST(masked.tokens == (Ids{1, 2, kEod, kEod, 3, 4, 5, kEod}), each);
  BOOST_TEST(masked.targets == (Ids{2, kEod, -1, -1, 4, 5, kEod, -1}), each);
  BOOST_TEST(masked.document_start == (Ids{0, 0, 0, 3, 4, 4, 4, 4}), each);
  const Sample open = open_eval(dir.path("d"), 8, false).sample(0);
  BOOST_TEST(open.targets == (Ids{2, kEod, kEod, 3, 4, 5, kEod, 6}), each);
  BOOST_TEST(open.document_start == Ids(8, 0), each);
  // A window that starts inside a document: its first part starts at 0.
  const Sample second = open_eval(dir.path("d"), 2).sample(1);
  BOOST_TEST(second.tokens == (Ids{kEod, kEod}), each);
  BOOST_TEST(second.document_start == (Ids{0, 1}), each);
}

// Case 77: the order after a stop is the order without one.
BOOST_AUTO_TEST_CASE(the_mean_context_is_that_of_the_training_windows) {
  const ScratchFolder dir;
  Documents documents;
  for (const int32_t length : {3, 1, 17, 8, 2, 40, 5}) {
    documents.emplace_back(size_t(length), 7);
    documents.back().back() = kEod;
  }
  write_tokens(dir.path("d"), documents);
  const TokenFile file(dir.path("d"));
  for (const int64_t seq_len : {1, 4, 8, 25, 75}) {
    for (const bool mask : {true, false}) {
      DatasetConfig config = make_config({{"d", dir.path("d")}}, seq_len);
      config.document_mask = mask;
      const BlendedDataset data(config);
      double keys = 0, positions = 0;
      for (int64_t i = 0; i < data.domains()[0].windows; ++i) {
        const Sample sample = data.sample(i);
        for (int64_t t = 0; t < seq_len; ++t)
          keys += double(t - sample.document_start[size_t(t)] + 1);
        positions += double(seq_len);
      }
      BOOST_TEST_CONTEXT("seq_len " << seq_len << " mask " << mask) {
        BOOST_CHECK_CLOSE(mean_context(file, seq_len, mask), keys / positions, 1e-12);
      }
    }
  }
  // Shorter than a window: all of it, seven triangles over 76 tokens.
  BOOST_CHECK_CLOSE(mean_context(file, 100, true), (6 + 1 + 153 + 36 + 3 + 820 + 15) / 76.0, 1e-12);
  BOOST_CHECK_CLOSE(mean_context(file, 100, false), 38.5, 1e-12);
}

BOOST_AUTO_TEST_CASE(case_77_resume_neither_replays_nor_skips) {
  const ScratchFolder dir;
  const auto config = make_config(three_shards(dir), 4);
  const BlendedDataset straight(config);
  constexpr int64_t kSteps = 8, kBatch = 5;
  std::vector<SequenceId> ids;
  for (int64_t i = 0; i < kSteps * kBatch; ++i) ids.push_back(straight.locate(i));
  for (int64_t stop = 1; stop < kSteps; ++stop) {
    const BlendedDataset resumed(config);
    for (int64_t i = stop * kBatch; i < kSteps * kBatch; ++i) {
      BOOST_TEST((resumed.locate(i) == ids[static_cast<size_t>(i)]));
    }
  }
}

BOOST_AUTO_TEST_CASE(case_77_fingerprint_sees_every_change_of_the_data) {
  const ScratchFolder dir;
  const auto config = make_config(three_shards(dir), 4);
  const std::string original = BlendedDataset(config).fingerprint();
  BOOST_TEST(BlendedDataset(config).fingerprint() == original);

  std::set<std::string> all{original};
  const auto add = [&](DatasetConfig changed) {
    all.insert(BlendedDataset(std::move(changed)).fingerprint());
  };
  auto changed = config;
  changed.domains.pop_back();
  add(changed);
  changed = config;
  std::swap(changed.domains[0], changed.domains[1]);
  add(changed);
  changed = config;
  changed.domains[0].name = "renamed";
  add(changed);
  changed = config;
  for (auto& domain : changed.domains) domain.weight = 1;
  add(changed);
  changed = config;
  changed.seq_len = 5;
  add(changed);
  changed = config;
  changed.seed = 2;
  add(changed);
  changed = config;
  changed.document_mask = false;
  add(changed);
  changed = config;
  changed.vocab_size = 300;
  add(changed);
  write_tokens(dir.path("shard3"), {Ids(14, 7)});  // same length, other tokens
  add(config);
  BOOST_TEST(all.size() == 10u);

  // The folder is no part of it: data may move.
  const ScratchFolder other;
  auto moved = make_config(three_shards(other), 4);
  BOOST_TEST(BlendedDataset(moved).fingerprint() == original);
}

// Case 79: data ends, the run does not.
BOOST_AUTO_TEST_CASE(case_79_epochs_roll_on) {
  const ScratchFolder dir;
  write_tokens(dir.path("a"), counting(3 * 4 + 1));
  write_tokens(dir.path("b"), counting(2 * 4 + 1));
  const auto config = make_config({{"a", dir.path("a"), 3.0}, {"b", dir.path("b"), 2.0}}, 4);
  const BlendedDataset data(config);
  const BlendedDataset resumed(config);
  std::map<std::pair<int64_t, int64_t>, std::set<int64_t>> windows;  // by domain and epoch
  for (int64_t i = 0; i < 15; ++i) {
    const SequenceId id = data.locate(i);
    BOOST_TEST(id.epoch == i / 5);  // 5 sequences an epoch: 12 steps end in the third
    auto& seen = windows[std::pair(id.domain, id.epoch)];
    BOOST_TEST(seen.insert(id.window).second);
    if (i >= 6) BOOST_TEST((resumed.locate(i) == id));
  }
  BOOST_TEST(windows.size() == 6u);
  for (const auto& [key, seen] : windows) BOOST_TEST(seen.size() == (key.first == 0 ? 3u : 2u));
}

// Case 80: a sequence's place is a global count, whatever the ranks and batches.
BOOST_AUTO_TEST_CASE(case_80_batches_are_cut_from_one_global_order) {
  const ScratchFolder dir;
  const BlendedDataset data(make_config(three_shards(dir), 4));
  const auto rows = [&](int64_t first, int64_t count) { return data.batch(first, count).tokens; };
  // Step 2 of a global batch of 4: two ranks with two micro-batches of one, or one rank with two
  // of two.
  Ids two_ranks, one_rank;
  for (const int64_t rank : {0, 1}) {
    for (const int64_t micro : {0, 1}) {
      const Ids part = rows(4 + rank * 2 + micro, 1);
      two_ranks.insert(two_ranks.end(), part.begin(), part.end());
    }
  }
  for (const int64_t micro : {0, 1}) {
    const Ids part = rows(4 + micro * 2, 2);
    one_rank.insert(one_rank.end(), part.begin(), part.end());
  }
  BOOST_TEST(two_ranks == one_rank, each);
  BOOST_TEST(two_ranks == rows(4, 4), each);
  for (int64_t i = 4; i < 8; ++i) BOOST_TEST(data.sample(i).tokens == rows(i, 1), each);
}

// Case 65: sizes that do not fit are refused before anything is allocated.
BOOST_AUTO_TEST_CASE(case_65_data_shorter_than_a_window_is_refused) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), counting(10));
  const DomainSource source{"d", dir.path("d")};
  BOOST_CHECK_EXCEPTION(BlendedDataset(make_config({source}, 10)), ConfigError,
                        says("has 10 tokens; one window needs seq_len + 1 = 11"));
  BOOST_CHECK_EXCEPTION(BlendedDataset(make_config({source}, 2147483646)), ConfigError,
                        says("seq_len + 1 = 2147483647"));
  BOOST_CHECK_EXCEPTION(BlendedDataset(make_config({source}, int64_t{1} << 40)), ConfigError,
                        says("seq_len is 1099511627776"));
  BOOST_CHECK_EXCEPTION(BlendedDataset(make_config({source}, 0)), ConfigError,
                        says("seq_len is 0"));
  BOOST_CHECK_NO_THROW(BlendedDataset(make_config({source}, 9)));
  write_tokens(dir.path("one"), counting(1));
  BOOST_CHECK_EXCEPTION(open_eval(dir.path("one"), 4), ConfigError, says("has 1 tokens"));
  write_tokens(dir.path("none"), {});
  BOOST_CHECK_EXCEPTION(open_eval(dir.path("none"), 4), ConfigError, says("has 0 tokens"));
  BOOST_CHECK_EXCEPTION(BlendedDataset(make_config({{"n", dir.path("none")}}, 4)), ConfigError,
                        says("has 0 tokens"));
}

BOOST_AUTO_TEST_CASE(case_65_smallest_sizes_work) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), {Ids(5, 0)}, 1);
  auto config = make_config({{"d", dir.path("d")}}, 1);
  config.vocab_size = 1;
  config.eod_id = 0;
  config.document_mask = false;
  const BlendedDataset data(config);
  BOOST_TEST(data.domains()[0].windows == 4);
  const Batch batch = data.batch(0, 100);  // far more than the data holds
  BOOST_TEST(batch.tokens.size() == 100u);
  BOOST_TEST(batch.target_count() == 100);
}

BOOST_AUTO_TEST_CASE(every_epoch_is_a_new_permutation) {
  const ScratchFolder dir;
  for (const int32_t windows : {1, 2, 3, 4, 5, 7, 16, 17, 33, 64, 100}) {
    write_tokens(dir.path("d"), counting(windows + 1));
    const BlendedDataset data(make_config({{"d", dir.path("d")}}, 1));
    std::set<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<int64_t> order;
      for (int64_t i = 0; i < windows; ++i)
        order.push_back(data.locate(epoch * windows + i).window);
      orders.insert(order);
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < windows; ++i) BOOST_TEST(order[static_cast<size_t>(i)] == i);
    }
    if (windows >= 7) BOOST_TEST(orders.size() == 5u);
  }
}

BOOST_AUTO_TEST_CASE(permutations_depend_on_seed_and_domain_name) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), counting(101));
  const auto order = [&](const std::string& name, uint64_t seed) {
    const BlendedDataset data(make_config({{name, dir.path("d")}}, 1, seed));
    std::vector<int64_t> windows;
    for (int64_t i = 0; i < 100; ++i) windows.push_back(data.locate(i).window);
    return windows;
  };
  BOOST_TEST((order("a", 1) != order("b", 1)));
  BOOST_TEST((order("a", 1) != order("a", 2)));
  BOOST_TEST((order("a", 1) == order("a", 1)));
}

BOOST_AUTO_TEST_CASE(permutations_are_even_handed) {
  // Over many epochs each of 6 windows comes first equally often: the counts stay within five
  // standard deviations of a fair die.
  const ScratchFolder dir;
  constexpr int64_t kWindows = 6, kEpochs = 6000;
  write_tokens(dir.path("d"), counting(kWindows + 1));
  const BlendedDataset data(make_config({{"d", dir.path("d")}}, 1));
  for (int64_t position = 0; position < kWindows; ++position) {
    std::vector<int> counts(kWindows);
    for (int64_t e = 0; e < kEpochs; ++e) {
      ++counts[static_cast<size_t>(data.locate(e * kWindows + position).window)];
    }
    const double expected = double(kEpochs) / kWindows;
    for (const int count : counts) {
      BOOST_TEST(std::abs(count - expected) < 5 * std::sqrt(expected * (1 - 1.0 / kWindows)));
    }
  }
}

BOOST_AUTO_TEST_CASE(domains_come_in_their_shares_at_every_moment) {
  const ScratchFolder dir;
  write_tokens(dir.path("d"), counting(9));
  const std::vector<double> weights{0.25, 0.20, 0.10, 0.15, 0.30};
  std::vector<DomainSource> sources;
  for (size_t d = 0; d < weights.size(); ++d) {
    sources.push_back({join({"d", std::to_string(d)}), dir.path("d"), weights[d] * 7});
  }
  const BlendedDataset data(make_config(sources, 2));
  std::vector<int64_t> counts(weights.size());
  for (int64_t i = 0; i < 10000; ++i) {
    ++counts[static_cast<size_t>(data.locate(i).domain)];
    for (size_t d = 0; d < weights.size(); ++d) {
      BOOST_REQUIRE(std::abs(double(counts[d]) - weights[d] * double(i + 1)) < 1.5);
    }
  }
  BOOST_TEST(data.domains()[4].share == 0.30, boost::test_tools::tolerance(2e-5));
}

BOOST_AUTO_TEST_CASE(without_weights_domains_come_by_size) {
  const ScratchFolder dir;
  const BlendedDataset data(make_config(three_shards(dir), 4));  // 14, 22 and 38 tokens
  BOOST_TEST(data.domains()[0].share == 14.0 / 74, boost::test_tools::tolerance(2e-5));
  BOOST_TEST(data.domains()[2].share == 38.0 / 74, boost::test_tools::tolerance(2e-5));
}

BOOST_AUTO_TEST_CASE(a_far_sequence_is_the_one_that_walking_reaches) {
  // Counts every sequence over more than two periods of the blend and asks now and then whether
  // locate agrees on which window of its domain comes.
  const ScratchFolder dir;
  const BlendedDataset data(make_config(three_shards(dir), 4));
  std::vector<int64_t> counts(3);
  for (int64_t i = 0; i < 600'000; ++i) {
    const SequenceId id = data.locate(i);
    const auto d = static_cast<size_t>(id.domain);
    const int64_t nth = counts[d]++;
    if (id.epoch != nth / data.domains()[d].windows) {
      BOOST_FAIL("sequence " << i << " of domain " << d << " is in epoch " << id.epoch);
    }
  }
  for (size_t d = 0; d < 3; ++d) {
    BOOST_TEST(std::abs(double(counts[d]) - data.domains()[d].share * 600'000) < 1.5);
  }
  BOOST_TEST(data.locate(int64_t{1} << 50).epoch > (int64_t{1} << 45));
}

BOOST_AUTO_TEST_CASE(refuses_bad_settings_and_files_by_name) {
  const ScratchFolder dir;
  write_tokens(dir.path("a"), counting(20));
  write_tokens(dir.path("b"), {{1, 2, 300, 4, 5, 6}}, 1000);
  const auto open = [](std::vector<DomainSource> domains) {
    return BlendedDataset(make_config(std::move(domains), 4)).fingerprint();
  };
  const std::string a = dir.path("a"), b = dir.path("b");
  BOOST_CHECK_EXCEPTION(open({}), ConfigError, says("0 training domains"));
  BOOST_CHECK_EXCEPTION(open({{"x", a, 1.0}, {"y", a}}), ConfigError, says("1 of 2 domains"));
  BOOST_CHECK_EXCEPTION(open({{"x", a, 0.0}}), ConfigError, says("'x' has weight 0"));
  BOOST_CHECK_EXCEPTION(open({{"x", a, -1.0}}), ConfigError, says("'x' has weight -1"));
  BOOST_CHECK_EXCEPTION(open({{"x", a, NAN}}), ConfigError, says("'x' has weight"));
  BOOST_CHECK_EXCEPTION(open({{"x", a}, {"x", a}}), ConfigError, says("'x' is given twice"));
  BOOST_CHECK_EXCEPTION(open({{"x", b}}), IoError, says("token 2 has id 300"));
  BOOST_CHECK_EXCEPTION(open({{"x", dir.path("none")}}), IoError, says("none.idx"));
  BOOST_CHECK_THROW(open_eval(b, 4), IoError);
  auto config = make_config({{"x", a}}, 4);
  config.eod_id = 257;
  BOOST_CHECK_EXCEPTION(BlendedDataset{config}, ConfigError, says("end-of-document id 257"));
  config.vocab_size = 0;
  BOOST_CHECK_EXCEPTION(BlendedDataset{config}, ConfigError, says("vocab_size is 0"));
  BOOST_CHECK_THROW(BlendedDataset(make_config({{"x", a}}, 4)).locate(-1), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
