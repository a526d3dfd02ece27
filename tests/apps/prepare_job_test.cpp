// smelt-prepare on a user's own files: order, resuming, repeats, bad records, token files.
#include "apps/prepare/prepare_job.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "apps/prepare/ordered_work.h"
#include "tensor/error.h"
#include "tests/apps/archives.h"
#include "tests/apps/program.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// Texts of all lengths, some of them repeated, some empty.
std::string json_lines(int count, int salt = 0) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const int n = i % 7 == 3 ? i / 2 : i;
    std::string text = i % 11 == 5 ? "" : "document " + std::to_string(n + salt) + " ";
    if (!text.empty()) text += std::string(size_t((n * 37) % 900), char('a' + n % 26));
    lines += json::serialize(json::object{{"text", text}}) + "\n";
  }
  return lines;
}

std::vector<std::string> documents_in(const std::string& prefix) {
  const TokenFile file(prefix);
  std::vector<std::string> documents;
  for (int64_t d = 0; d < file.documents(); ++d) {
    std::vector<int32_t> ids(size_t(file.document_length(d)));
    file.read(file.document_begin(d), ids);
    BOOST_TEST(ids.back() == ByteTokenizer::kEod);
    ids.pop_back();
    documents.push_back(ByteTokenizer().decode(ids));
  }
  return documents;
}

struct Job : PrepareJob {
  Job(const ScratchFolder& dir, const std::string& folder) {
    out = dir.path(folder);
    fs::create_directories(out);
    domain = "d";
    vocabulary = {ByteTokenizer::kVocabSize, ByteTokenizer::kEod};
    settings = {{"input", 1}};
    holdout = 0.2;
    threads = 3;
  }
};

/// Ends with an error after some batches, as if the process had died.
class DyingSource final : public DocumentSource {
 public:
  DyingSource(std::unique_ptr<DocumentSource> source, int batches)
      : source_(std::move(source)), left_(batches) {}
  std::optional<BatchJob> next() override {
    if (left_-- == 0) throw RunError("died");
    return source_->next();
  }

 private:
  std::unique_ptr<DocumentSource> source_;
  int left_;
};

void check_same_files(const std::string& a, const std::string& b) {
  for (const char* name :
       {"d.train.bin", "d.train.idx", "d.valid.bin", "d.valid.idx", "d.test.bin", "d.test.idx"})
    BOOST_TEST((read_file(fs::path(a) / name) == read_file(fs::path(b) / name)), name);
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

size_t entries(const std::string& folder) {
  return size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(ordered_work)

BOOST_AUTO_TEST_CASE(results_come_in_order_and_memory_is_bounded) {
  for (const int threads : {1, 4}) {
    int next = 0;
    std::atomic<int> fetched = 0;
    OrderedWork<int, int> work(
        [&] {
          ++fetched;
          return next < 200 ? std::optional(next++) : std::nullopt;
        },
        [](int i) {
          if (i % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
          return i * i;
        },
        threads, 6);
    for (int i = 0; i < 200; ++i) {
      BOOST_TEST(work.take().value() == i * i);
      BOOST_TEST(fetched <= i + 1 + 6 + 1);
    }
    BOOST_TEST(!work.take().has_value());
    BOOST_TEST(!work.take().has_value());
  }
}

BOOST_AUTO_TEST_CASE(errors_come_in_their_turn) {
  for (const bool in_fetch : {false, true}) {
    int next = 0;
    OrderedWork<int, int> work(
        [&]() -> std::optional<int> {
          if (in_fetch && next == 7) throw IoError("seven");
          return next++;
        },
        [&](int i) {
          if (!in_fetch && i == 7) throw IoError("seven");
          return i;
        },
        3, 4);
    for (int i = 0; i < 7; ++i) BOOST_TEST(work.take().value() == i);
    BOOST_CHECK_EXCEPTION(work.take(), IoError, says("seven"));
  }
  // Dropped with work left.
  OrderedWork<int, int> endless([] { return std::optional(1); }, [](int i) { return i; }, 2, 3);
  BOOST_TEST(endless.take().value() == 1);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(prepare_job)

BOOST_AUTO_TEST_CASE(documents_keep_the_order_of_the_input_for_any_threads) {
  const ScratchFolder dir;
  write_file(dir.path("a.jsonl"), json_lines(9000));
  write_file(dir.path("b.txt"), "plain");
  const ByteTokenizer tokenizer;
  const auto source = [&](SourcePosition from) {
    return text_documents(find_inputs({dir.path("a.jsonl"), dir.path("b.txt")}), {}, tokenizer,
                          from);
  };
  for (const int threads : {1, 5}) {
    Job job(dir, "t" + std::to_string(threads));
    job.threads = threads;
    job.split = Split::train;
    const json::object entry = run_prepare(job, source);
    BOOST_TEST(entry.at("skipped").at("empty").as_int64() == 818);
    BOOST_TEST(entry.at("documents").as_int64() == 9000 - 818 + 1);
  }
  check_same_files(dir.path("t1"), dir.path("t5"));
  const auto documents = documents_in(dir.path("t5/d.train"));
  BOOST_TEST(documents[0] == "document 0 ");
  BOOST_TEST(documents[3].starts_with("document 1 "));
  BOOST_TEST(documents.back() == "plain");
}

BOOST_AUTO_TEST_CASE(an_interrupted_run_goes_on_to_the_same_bytes) {
  const ScratchFolder dir;
  write_file(dir.path("a.jsonl.zst"), zstd_bytes(json_lines(12000)));
  write_file(dir.path("b.jsonl.gz"), gzip_bytes(json_lines(12000, 9000)));
  const ByteTokenizer tokenizer;
  const auto source = [&](SourcePosition from) {
    return text_documents(find_inputs({dir.path("a.jsonl.zst"), dir.path("b.jsonl.gz")}), {},
                          tokenizer, from);
  };
  for (const bool unique : {false, true}) {
    Job whole(dir, join({"whole", unique ? "1" : "0"}));
    whole.unique = unique;
    const json::object expected = run_prepare(whole, source);
    BOOST_TEST((expected.at("skipped").at("repeated").as_int64() > 1000) == unique);

    Job parts(dir, join({"parts", unique ? "1" : "0"}));
    parts.unique = unique;
    parts.save_every = 0;  // behind every batch
    for (const int batches : {1, 3, 1, 2}) {
      BOOST_CHECK_EXCEPTION(run_prepare(parts,
                                        [&](SourcePosition from) {
                                          return std::make_unique<DyingSource>(source(from),
                                                                               batches);
                                        }),
                            RunError, says("died"));
      BOOST_TEST(!fs::exists(fs::path(parts.out) / "d.train.bin"));
      // What a process that dies had written behind its last save.
      std::ofstream(parts.out + "/d.train.bin.tmp", std::ios::app) << "torn";
      if (unique) std::ofstream(parts.out + "/.d.hashes", std::ios::app) << "torn";
    }
    const json::object entry = run_prepare(parts, source);
    BOOST_TEST(entry == expected);
    check_same_files(whole.out, parts.out);
    BOOST_TEST(entries(parts.out) == 6u);  // nothing else stays behind
  }
}

BOOST_AUTO_TEST_CASE(an_interrupted_run_goes_on_only_with_its_settings) {
  const ScratchFolder dir;
  write_file(dir.path("a.jsonl"), json_lines(12000));
  const ByteTokenizer tokenizer;
  const auto source = [&](SourcePosition from) {
    return text_documents(find_inputs({dir.path("a.jsonl")}), {}, tokenizer, from);
  };
  Job job(dir, "out");
  job.save_every = 0;
  BOOST_CHECK_THROW(
      run_prepare(
          job, [&](SourcePosition from) { return std::make_unique<DyingSource>(source(from), 2); }),
      RunError);
  job.settings["input"] = 2;
  BOOST_CHECK_EXCEPTION(run_prepare(job, source), ConfigError,
                        says("begun with other settings (input differs)"));
  job.restart = true;
  const json::object entry = run_prepare(job, source);
  BOOST_TEST(entry.at("documents").as_int64() == 12000 - 1091);
  job.restart = false;
  for (const char* state :
       {"", "{\"format\":1}", "{\"format\":\"smelt prepare progress\",\"version\":1}",
        "{\"format\":\"smelt prepare progress\",\"version\":1,\"settings\":{\"input\":2},"
        "\"counters\":{\"input\":\"x\"}}",
        "{\"format\":\"smelt prepare progress\",\"version\":1,\"settings\":{\"input\":2},"
        "\"counters\":{\"input\":0,\"record\":1,\"empty\":0,\"bad\":0,\"repeated\":0,\"hashes\":0},"
        "\"splits\":{\"train\":{\"documents\":1}}}"}) {
    write_file(job.out + "/.d.progress.json", state);
    BOOST_CHECK_EXCEPTION(run_prepare(job, source), IoError, says("damaged; start again"));
  }
}

BOOST_AUTO_TEST_CASE(equal_documents_share_a_split) {
  size_t valid = 0, test = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto hash = content_hash(std::to_string(i));
    const Split split = split_by_hash(hash, 0.05);
    BOOST_REQUIRE((split == split_by_hash(content_hash(std::to_string(i)), 0.05)));
    valid += split == Split::valid;
    test += split == Split::test;
    BOOST_REQUIRE((split_by_hash(hash, 0) == Split::train));
    BOOST_REQUIRE((split_by_hash(hash, 0.5) != Split::train));
  }
  // Binomial: 1000 expected, four standard deviations are 123.
  BOOST_TEST(std::abs(int(valid) - 1000) < 125);
  BOOST_TEST(std::abs(int(test) - 1000) < 125);
}

BOOST_AUTO_TEST_CASE(bad_records_are_counted_up_to_a_limit) {
  const ScratchFolder dir;
  write_file(dir.path("a.jsonl"),
             "{\"text\":\"one\"}\n{\n{\"text\":\"two\"}\n[]\n{\"text\":\"three\"}\n");
  const ByteTokenizer tokenizer;
  const auto source = [&](SourcePosition from) {
    return text_documents(find_inputs({dir.path("a.jsonl")}), {}, tokenizer, from);
  };
  Job job(dir, "out");
  job.split = Split::train;
  BOOST_CHECK_EXCEPTION(run_prepare(job, source), IoError, says("a.jsonl:2: not valid JSON"));
  BOOST_TEST(entries(job.out) == 0u);
  job.max_bad = 1;
  BOOST_CHECK_EXCEPTION(run_prepare(job, source), IoError,
                        says("a.jsonl:4: expected a JSON object (and 1 unreadable"));
  job.max_bad = 2;
  BOOST_TEST(run_prepare(job, source).at("skipped").at("unreadable").as_int64() == 2);
  BOOST_TEST(documents_in(job.out + "/d.train").size() == 3u);
}

BOOST_AUTO_TEST_CASE(separators_cut_plain_files) {
  const ScratchFolder dir;
  std::string text = "<|endoftext|>first<|endoftext|><|endoftext|>sec<|end";
  text += std::string((1 << 20) - 60, 'x') + "<|endoftext|>last";  // the mark crosses a read block
  write_file(dir.path("a.txt"), text);
  std::vector<std::string> documents;
  const TextOptions options{.format = TextFormat::plain, .separator = "<|endoftext|>"};
  read_documents(dir.path("a.txt"), options,
                 [&](std::string document, int64_t) { documents.push_back(std::move(document)); });
  BOOST_REQUIRE(documents.size() == 3u);
  BOOST_TEST(documents[0] == "first");
  BOOST_TEST(documents[1].size() == size_t((1 << 20) - 60 + 8));
  BOOST_TEST(documents[2] == "last");
  TextOptions tight = options;
  tight.max_record_bytes = 1000;
  BOOST_CHECK_EXCEPTION(read_documents(dir.path("a.txt"), tight, [](auto&&, int64_t) {}), IoError,
                        says("the document is longer than 1000"));
}

BOOST_AUTO_TEST_CASE(folders_give_their_files_in_order) {
  const ScratchFolder dir;
  for (const char* name : {"in/b.txt", "in/a/z.txt", "in/.hidden", "in/.git/x", "in/c.txt"}) {
    fs::create_directories((dir / name).parent_path());
    write_file(dir.path(name), name);
  }
  const auto inputs = find_inputs({dir.path("in/c.txt"), dir.path("in")});
  BOOST_REQUIRE(inputs.size() == 4u);
  BOOST_TEST(inputs[1].path == dir.path("in/a/z.txt"));
  BOOST_TEST(inputs[2].path == dir.path("in/b.txt"));
  BOOST_TEST(inputs[2].bytes == 8);
  fs::create_directory(dir / "empty");
  BOOST_CHECK_EXCEPTION(find_inputs({dir.path("empty")}), ConfigError, says("holds no files"));
  BOOST_CHECK_EXCEPTION(find_inputs({dir.path("none")}), IoError, says("no such file"));
  BOOST_CHECK_EXCEPTION(find_inputs({"-", "a"}), ConfigError, says("must stand alone"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(token_inputs)

namespace {

std::string llmc_file(const std::string& ids, int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header) + ids;
}

std::vector<std::vector<int32_t>> read_all(DocumentSource& source) {
  std::vector<std::vector<int32_t>> documents;
  while (const auto job = source.next()) {
    for (const EncodedDocument& document : (*job)().documents) documents.push_back(document.ids);
  }
  return documents;
}

constexpr TokenIds kVocabulary{100, 99};

}  // namespace

// llm.c puts the mark before each document, nanoGPT behind it; documents cross files.
BOOST_AUTO_TEST_CASE(bare_files_are_cut_at_the_end_mark) {
  const ScratchFolder dir;
  const std::vector<uint16_t> first{99, 1, 2, 99, 3}, second{4, 5, 99, 99, 6, 99};
  write_file(dir.path("a.bin"), llmc_file(bytes_of(first), 20240520, 1, 5));
  write_file(dir.path("b.bin"), llmc_file(bytes_of(second), 20240520, 1, 6));
  write_file(dir.path("c.bin"), bytes_of(first));
  write_file(dir.path("d.bin"), bytes_of(second));
  const std::vector<uint32_t> wide{99, 1, 2, 99, 3, 4, 5, 99, 6};
  write_file(dir.path("e.bin"), llmc_file(bytes_of(wide), 20240801, 7, 9));
  write_file(dir.path("f.bin"), bytes_of(wide));
  const std::vector<std::vector<int32_t>> expected{{1, 2, 99}, {3, 4, 5, 99}, {6, 99}};
  const auto check = [&](const std::vector<std::string>& names, TokenFormat format) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(dir.path(name));
    const auto source = token_documents(find_inputs(paths), format, kVocabulary, nullptr, {});
    BOOST_TEST((read_all(*source) == expected));
  };
  check({"a.bin", "b.bin"}, TokenFormat::llmc);
  check({"c.bin", "d.bin"}, TokenFormat::nanogpt);
  check({"e.bin"}, TokenFormat::llmc);
  check({"f.bin"}, TokenFormat::bare_u32);
}

BOOST_AUTO_TEST_CASE(damaged_token_files_are_named) {
  const ScratchFolder dir;
  const std::string ids = bytes_of(std::vector<uint16_t>{1, 2, 100, 99});
  const auto refuse = [&](const std::string& bytes, TokenFormat format,
                          const std::string& message) {
    write_file(dir.path("x.bin"), bytes);
    BOOST_CHECK_EXCEPTION(read_all(*token_documents(find_inputs({dir.path("x.bin")}), format,
                                                    kVocabulary, nullptr, {})),
                          IoError, says(message));
  };
  refuse("", TokenFormat::llmc, "x.bin: the file is empty");
  refuse("short", TokenFormat::llmc, "5 bytes, shorter than the header");
  refuse(llmc_file(ids, 20240520, 2, 4), TokenFormat::llmc, "magic 20240520, version 2");
  refuse(llmc_file(ids, 20240522, 1, 4), TokenFormat::llmc, "magic 20240522");
  refuse(llmc_file(ids, 20240520, 1, 5), TokenFormat::llmc, "header says 5 tokens");
  refuse(llmc_file(ids, 20240520, 1, -4), TokenFormat::llmc, "header says -4 tokens");
  refuse(llmc_file(ids, 20240801, 7, 4), TokenFormat::llmc, "header says 4 tokens of 4 bytes");
  refuse(llmc_file(ids, 20240520, 1, 4), TokenFormat::llmc,
         "token 2 is 100, outside the vocabulary");
  refuse(ids + "x", TokenFormat::nanogpt, "9 bytes are no whole number of ids of 2 bytes");
  refuse(ids + "xx", TokenFormat::bare_u32, "10 bytes are no whole number of ids of 4 bytes");
}

BOOST_AUTO_TEST_CASE(megatron_files_come_out_as_they_went_in) {
  const ScratchFolder dir;
  fs::create_directory(dir / "in");
  write_tokens(dir.path("in/a"), {{1, 2, 99}, {}, {3}, {99}}, 100);
  write_tokens(dir.path("in/b"), {{4, 99, 5, 99}}, 100);
  const auto source = [&](SourcePosition from) {
    return token_documents(find_inputs({dir.path("in")}), TokenFormat::megatron, kVocabulary,
                           nullptr, from);
  };
  const std::vector<std::vector<int32_t>> expected{{1, 2, 99}, {3, 99}, {4, 99, 5, 99}};
  BOOST_TEST((read_all(*source({})) == expected));
  Job job(dir, "out");
  job.vocabulary = kVocabulary;
  job.split = Split::valid;
  const json::object entry = run_prepare(job, source);
  BOOST_TEST(entry.at("tokens").as_int64() == 9);
  BOOST_TEST(TokenFile(job.out + "/d.valid").documents() == 3);
  BOOST_CHECK_EXCEPTION(token_documents(find_inputs({dir.path("in/a.bin")}), TokenFormat::megatron,
                                        kVocabulary, nullptr, {}),
                        ConfigError, says("name PREFIX.idx"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(prepare_program)

BOOST_AUTO_TEST_CASE(a_killed_program_goes_on) {
  const ScratchFolder dir;
  write_file(dir.path("a.jsonl"), json_lines(60000));
  const std::string common = join({SMELT_PREPARE, " --input ", dir.path("a.jsonl"),
                                   " --domain d --unique --save-every 0 --json --out "});
  const Outcome whole = run_command(dir, common + dir.path("whole"));
  BOOST_REQUIRE(whole.code == 0);
  for (const char* signal : {"KILL", "TERM"}) {
    const std::string out = dir.path(signal);
    const Outcome cut = run_command(
        dir, join({"bash -c '", common, out, " & pid=$!; until [ -e ", out,
                   "/.d.progress.json ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done; kill -",
                   signal, " $pid; wait $pid'"}));
    BOOST_TEST(cut.code != 0);
    if (signal == std::string("TERM"))
      BOOST_TEST(cut.err.find("the same command goes on from there") != std::string::npos);
    const Outcome rest = run_command(dir, common + out);
    BOOST_TEST(rest.code == 0);
    BOOST_TEST(rest.err.find("going on with d behind document") != std::string::npos);
    check_same_files(dir.path("whole"), out);
    BOOST_TEST(rest.out == whole.out);
  }
}

BOOST_AUTO_TEST_CASE(standard_input_and_its_format) {
  const ScratchFolder dir;
  write_file(dir.path("lines"), gzip_bytes("{\"text\":\"one\"}\n{\"text\":\"two\"}\n"));
  const std::string tail = join({" | ", SMELT_PREPARE, " --input - --split train --out "});
  BOOST_TEST(run_command(dir, join({"cat ", dir.path("lines"), tail, dir.path("o1")})).code == 0);
  BOOST_TEST(documents_in(dir.path("o1/text.train")).size() == 2u);
  const Outcome parts = run_command(dir, join({"printf 'a\\n\\nb\\n\\nc'", tail, dir.path("o2"),
                                               " --format text --separator '\\n\\n'"}));
  BOOST_TEST(parts.code == 0);
  BOOST_TEST(documents_in(dir.path("o2/text.train")) == (std::vector<std::string>{"a", "b", "c"}),
             boost::test_tools::per_element());
  BOOST_TEST(parts.out.find("documents by tokens") != std::string::npos);
  const Outcome empty = run_command(dir, join({"printf ''", tail, dir.path("o3")}));
  BOOST_TEST(empty.code == 2);
  BOOST_TEST(empty.err.find("standard input: the file is empty") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(token_files_and_vocabularies) {
  const ScratchFolder dir;
  write_file(dir.path("a.bin"), bytes_of(std::vector<uint16_t>{99, 1, 2, 99, 3}));
  const std::string command = join({SMELT_PREPARE, " --input ", dir.path("a.bin"),
                                    " --format nanogpt --split train --out ", dir.path("o")});
  BOOST_TEST(run_command(dir, command + " --vocab-size 100 --eod-id 99").code == 0);
  BOOST_TEST(TokenFile(dir.path("o/text.train")).tokens() == 5);
  BOOST_TEST(!fs::exists(dir / "o/tokenizer.json"));
  const Outcome other = run_command(dir, command + " --vocab-size 200 --eod-id 99");
  BOOST_TEST(other.code == 2);
  BOOST_TEST(other.err.find("vocab_size = 100, not 200 as asked for now") != std::string::npos);
  const Outcome none = run_command(dir, command);
  BOOST_TEST(none.err.find("token files need --tokenizer, or --vocab-size") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_tokenizer_is_trained_taken_over_and_kept_apart) {
  const ScratchFolder dir;
  write_file(dir.path("a.jsonl.gz"), gzip_bytes(json_lines(3000) + "broken\n"));
  const std::string command = join({SMELT_PREPARE, " --input ", dir.path("a.jsonl.gz"),
                                    " --max-bad 1 --split train --json --out "});
  for (const char* style : {"gpt2", "llama3", "qwen"}) {
    const std::string out = dir.path(style);
    const Outcome trained =
        run_command(dir, join({command, out, " --train-tokenizer 600 --tokenizer-style ", style}));
    BOOST_TEST_CONTEXT(style << "\n" << trained.err) {
      BOOST_REQUIRE(trained.code == 0);
      const auto totals = json::parse(trained.out).at("domains").at("text");
      BOOST_TEST(totals.at("bytes_per_token").as_double() > 3);
      const auto tokenizer = load_tokenizer(out);
      BOOST_TEST(tokenizer->vocab_size() <= 600);
      const TokenFile file(out + "/text.train");
      std::vector<int32_t> ids(size_t(file.document_length(3)));
      file.read(file.document_begin(3), ids);
      BOOST_TEST(ids.back() == tokenizer->eod_id());
      BOOST_TEST(tokenizer->decode(ids).starts_with("document 1 "));
      // The same tokenizer gives the same file.
      const std::string again = join({dir.path(style), "-again"});
      BOOST_TEST(run_command(dir, join({command, again, " --tokenizer ", out})).code == 0);
      BOOST_TEST((read_file(again + "/text.train.bin") == read_file(out + "/text.train.bin")));
      BOOST_TEST((read_file(again + "/tokenizer.json") == read_file(out + "/tokenizer.json")));
    }
  }
  const Outcome mixed =
      run_command(dir, join({command, dir.path("qwen"), " --tokenizer ", dir.path("gpt2")}));
  BOOST_TEST(mixed.code == 2);
  BOOST_TEST(mixed.err.find("files of two") != std::string::npos);
  const Outcome piped =
      run_command(dir, join({"cat ", dir.path("a.jsonl.gz"), " | ", SMELT_PREPARE,
                             " --input - --train-tokenizer 600 --out ", dir.path("piped")}));
  BOOST_TEST(piped.code == 2);
  BOOST_TEST(piped.err.find("cannot be read twice") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
