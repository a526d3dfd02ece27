// The corpus as a whole: the compiled-in tables, and the pipeline over packages made here.
#include "apps/prepare/corpus.h"

#include <algorithm>
#include <map>

#include <boost/json.hpp>
#include <boost/test/unit_test.hpp>

#include "apps/common/process.h"
#include "apps/common/sha256.h"
#include "apps/common/token_file.h"
#include "apps/common/tokenizer/bpe_tokenizer.h"
#include "apps/prepare/options.h"
#include "apps/prepare/output.h"
#include "tensor/error.h"
#include "tests/apps/data_files.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

// A Debian package holding these files, in the cache folder under apt's name for it.
PackageInfo make_package(const std::string& cache, const std::string& name,
                         const std::map<std::string, std::string>& files) {
  const ScratchFolder tree;
  std::filesystem::create_directories(tree.path("DEBIAN"));
  write_file(tree.path("DEBIAN/control"), "Package: " + name +
                                              "\nVersion: 1:2-3\nArchitecture: all\n"
                                              "Maintainer: Nobody <n@example.org>\n"
                                              "Description: made for a test\n");
  for (const auto& [path, text] : files) {
    std::filesystem::create_directories(std::filesystem::path(tree.path(path)).parent_path());
    write_file(tree.path(path), text);
  }
  PackageInfo package{name, "1:2-3", "all", "frozen", 1000, "", "MIT"};
  const std::string file = cache + '/' + package.file_name();
  const CommandResult built =
      run_command({"dpkg-deb", "--root-owner-group", "--build", tree.path(), file}, "");
  BOOST_REQUIRE_MESSAGE(built.exit_code == 0, built.output);
  package.sha256 = sha256_of_files({file}).front();
  return package;
}

std::string prose(const std::string& word, int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += word + " line number " + std::to_string(i) + " of many\n";
  return text;
}

struct MadeCorpus {
  ScratchFolder cache, out;
  Manifest manifest;

  // Two packages, two domains; the file "same" is in both.
  MadeCorpus() {
    manifest.size = "small";
    std::map<std::string, std::string> first, second;
    for (int i = 0; i < 40; ++i) {
      const std::string number = std::to_string(i);
      first[join({"usr/src/f", number, ".c"})] = prose(join({"first", number}), 10 + i);
    }
    first["usr/src/same.c"] = second["usr/share/same.c"] = prose("same", 20);
    first["usr/src/notes.md"] = prose("not wanted", 20);
    second["usr/share/other.c"] = prose("other", 30);
    manifest.packages = {make_package(cache.path(), "one", first),
                         make_package(cache.path(), "two", second)};
    manifest.rows = {{"code", "one", "1:2-3", "*.c", "text", 0},
                     {"web", "two", "1:2-3", "*.c", "text", 0}};
    int64_t code = 0;
    for (const auto& [path, text] : first) {
      if (path.ends_with(".c")) code += static_cast<int64_t>(text.size());
    }
    const auto other = static_cast<int64_t>(second["usr/share/other.c"].size());
    manifest.rows[0].text_bytes = code;
    manifest.rows[1].text_bytes = other + static_cast<int64_t>(prose("same", 20).size());
    manifest.totals = {{"code", code, 41}, {"web", other, 1}};
  }

  boost::json::object prepare() {
    return prepare_corpus(manifest, {out.path(), cache.path(), ""}, ByteTokenizer(),
                          [](const std::string&) {});
  }
  std::string bytes(const std::string& name) const { return read_file(out.path(name)); }
};

// An apt-get of our own, first in PATH: it copies packages from `offers`, or fails while a file
// named fail (always) or fail-once lies beside it, and notes how it was called.
struct FakeApt {
  ScratchFolder bin, offers, cache;
  std::string path = getenv("PATH");

  FakeApt() {
    write_file(bin.path("apt-get"),
               join({"#!/bin/sh\nd=", bin.path(), "\necho \"$*\" >> $d/calls\n",
                     "[ $2 = download ] || exit 0\n"
                     "for f in fail fail-once; do if [ -e $d/$f ]; then rm -f $d/fail-once; "
                     "echo 'Reading'; echo 'E: No packages found'; exit 100; fi; done\n",
                     "cp ", offers.path(), "/* .\n"}));
    std::filesystem::permissions(bin.path("apt-get"), std::filesystem::perms::owner_all);
    setenv("PATH", join({bin.path(), ":", path}).c_str(), 1);
  }
  ~FakeApt() { setenv("PATH", path.c_str(), 1); }

  PackageInfo offer(const std::string& name, const std::string& contents) {
    PackageInfo package{name, "1:2-3", "all", "frozen", 1000, "", "MIT"};
    write_file(offers.path(package.file_name()), contents);
    package.sha256 = sha256_of_files({offers.path(package.file_name())}).front();
    return package;
  }
  // The calls since last asked, each ended by '|'.
  std::string calls() const {
    std::string text = read_file(bin.path("calls"));
    std::replace(text.begin(), text.end(), '\n', '|');
    std::filesystem::remove(bin.path("calls"));
    return text;
  }
};

PrepareOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "smelt-prepare");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(corpus)

BOOST_AUTO_TEST_CASE(the_small_corpus_is_the_published_one) {
  const Manifest manifest = load_manifest("small");
  BOOST_TEST(manifest.rows.size() == 37u);
  BOOST_TEST(manifest.packages.size() == 36u);
  int64_t text = 0, pieces = 0, download = 0;
  for (const DomainTotal& total : manifest.totals) {
    text += total.text_bytes;
    pieces += total.pieces;
  }
  for (const PackageInfo& package : manifest.packages) {
    download += package.download_bytes;
    BOOST_TEST(package.sha256.size() == 64u);
    BOOST_TEST(package.architecture == "all");
  }
  BOOST_TEST(text == 84824358);
  BOOST_TEST(pieces == 6923);
  BOOST_TEST(download / 10000 == 2435);  // 24.35 MB
  BOOST_CHECK_EXCEPTION(load_manifest("medium"), ConfigError,
                        says("'medium' is not supported; allowed is small"));
}

BOOST_AUTO_TEST_CASE(package_files_are_named_as_apt_does) {
  const PackageInfo package{"fortunes", "1:1.99.1-7.3", "all", "frozen", 1, "", ""};
  BOOST_TEST(package.file_name() == "fortunes_1%3a1.99.1-7.3_all.deb");
}

BOOST_AUTO_TEST_CASE(packages_become_token_files_without_a_network) {
  MadeCorpus made;
  const boost::json::object domains = made.prepare();
  const auto& code = domains.at("code").as_object();
  BOOST_TEST(code.at("documents").as_int64() == 41);
  BOOST_TEST(code.at("bytes").as_int64() == made.manifest.totals[0].text_bytes);
  BOOST_TEST(code.at("tokens").as_int64() == made.manifest.totals[0].text_bytes + 41);
  // "same" went to the first row that has it.
  BOOST_TEST(domains.at("web").as_object().at("documents").as_int64() == 1);
  BOOST_TEST(code.at("packages").as_array().at(0).at("version").as_string() == "1:2-3");

  int64_t documents = 0;
  for (const std::string_view split : kSplitNames) {
    const TokenFile file(made.out.path(join({"code.", split})));
    BOOST_TEST(code.at("splits").at(split).at("tokens").as_int64() == file.tokens());
    documents += file.documents();
    for (int64_t d = 0; d < file.documents(); ++d) {
      BOOST_TEST(file.token(file.document_begin(d + 1) - 1) == 256);
    }
  }
  BOOST_TEST(documents == 41);
}

BOOST_AUTO_TEST_CASE(two_runs_write_the_same_bytes) {
  MadeCorpus made;
  made.prepare();
  const std::string bin = made.bytes("code.train.bin"), idx = made.bytes("code.train.idx");
  BOOST_TEST(!bin.empty());
  made.prepare();
  BOOST_TEST((made.bytes("code.train.bin") == bin));
  BOOST_TEST((made.bytes("code.train.idx") == idx));
}

BOOST_AUTO_TEST_CASE(a_domain_off_by_more_than_one_percent_is_refused) {
  MadeCorpus made;
  made.manifest.totals[0].text_bytes = made.manifest.totals[0].text_bytes * 99 / 100 - 500;
  BOOST_CHECK_EXCEPTION(made.prepare(), RunError, says("domain code came to"));
  BOOST_TEST(!std::filesystem::exists(made.out.path("code.train.idx")));
  made.manifest.rows[1].text_bytes *= 2;
  BOOST_CHECK_EXCEPTION(made.prepare(), RunError, says("package two of domain web"));
}

BOOST_AUTO_TEST_CASE(a_damaged_package_with_the_right_hash_ends_the_run) {
  MadeCorpus made;
  PackageInfo& package = made.manifest.packages[0];
  write_file(made.cache.path(package.file_name()), "no package");
  package.sha256 = sha256_of_files({made.cache.path(package.file_name())}).front();
  BOOST_CHECK_EXCEPTION(made.prepare(), RunError, says("dpkg-deb: failed with exit code 2"));
}

BOOST_AUTO_TEST_CASE(packages_are_fetched_checked_and_kept) {
  FakeApt apt;
  const PackageInfo package = apt.offer("made", "contents");
  const auto fetch = [&] {
    std::string reports;
    const auto paths = fetch_packages({package}, apt.cache.path("sub"),
                                      [&](const std::string& line) { reports += line + '\n'; });
    BOOST_TEST(paths.front() == apt.cache.path("sub/" + package.file_name()));
    BOOST_TEST(read_file(paths.front()) == "contents");
    return reports;
  };
  // Not there: apt fails once, as without an index, then works.
  write_file(apt.bin.path("fail-once"), "");
  const std::string reports = fetch();
  BOOST_TEST(reports.find("downloading 1 packages") != std::string::npos);
  BOOST_TEST(reports.find("No packages found") != std::string::npos);
  BOOST_TEST(apt.calls() == "-q download made=1:2-3|-q update|-q download made=1:2-3|");
  // There: apt is not asked.
  BOOST_TEST(fetch() == "");
  // There but broken: fetched anew.
  write_file(apt.cache.path("sub/" + package.file_name()), "conte");
  fetch();
  BOOST_TEST(apt.calls() == "-q download made=1:2-3|");
}

BOOST_AUTO_TEST_CASE(packages_that_cannot_be_had_end_in_one_line) {
  FakeApt apt;
  PackageInfo package = apt.offer("made", "contents");
  const auto fetch = [&] {
    fetch_packages({package}, apt.cache.path(), [](const std::string&) {});
  };
  write_file(apt.bin.path("fail"), "");
  BOOST_CHECK_EXCEPTION(fetch(), RunError, [](const RunError& e) {
    const std::string text = e.what();
    return text.find("No packages found; --input prepares") != std::string::npos &&
           text.find('\n') == std::string::npos;
  });
  std::filesystem::remove(apt.bin.path("fail"));
  package.sha256[0] = package.sha256[0] == '0' ? '1' : '0';
  BOOST_CHECK_EXCEPTION(fetch(), RunError,
                        says("package made 1:2-3 was downloaded, but its SHA-256"));
  std::filesystem::remove(apt.bin.path("apt-get"));
  setenv("PATH", "/nonexistent", 1);
  BOOST_CHECK_EXCEPTION(fetch(), RunError, says("apt-get: cannot start this program"));
}

BOOST_AUTO_TEST_CASE(the_program_prepares_files_and_sets_exit_codes) {
  const ScratchFolder dir;
  write_file(dir.path("a.jsonl"), "{\"text\":\"one\"}\n{\"text\":\"two\"}\n");
  write_file(dir.path("bad.jsonl"), "{\"text\":\"one\"}\n{\n");
  const std::string out = dir.path("out");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), SMELT_PREPARE);
    return run_command(arguments, dir.path());
  };
  const CommandResult good =
      run({"--input", "a.jsonl", "--out", out, "--domain", "mine", "--split", "valid", "--json"});
  BOOST_TEST(good.exit_code == 0);
  const auto document = boost::json::parse(good.output);
  BOOST_TEST(document.at("domains").at("mine").at("splits").at("valid").at("tokens").as_int64() ==
             8);
  BOOST_TEST(TokenFile(out + "/mine.valid").documents() == 2);
  BOOST_TEST(load_tokenizer(out)->vocab_size() == 257);
  BOOST_TEST(boost::json::parse(read_file(out + "/corpus.json")) == document);

  const CommandResult bad = run({"--input", "bad.jsonl", "--out", out, "--domain", "other"});
  BOOST_TEST(bad.exit_code == 2);
  BOOST_TEST(bad.output.starts_with("smelt-prepare: error: bad.jsonl:2: not valid JSON"));
  BOOST_TEST(std::count(bad.output.begin(), bad.output.end(), '\n') == 1);
  BOOST_TEST(!std::filesystem::exists(out + "/other.train.bin"));
  BOOST_TEST(!std::filesystem::exists(out + "/other.train.bin.tmp"));

  BOOST_TEST(run({"--corpus", "large", "--out", out}).exit_code == 2);
  BOOST_TEST(run({"--input", "none.txt", "--out", out}).exit_code == 2);
  BOOST_TEST(run({"--help"}).exit_code == 0);
  BOOST_TEST(run({"--version"}).output.starts_with("smelt "));
  FakeApt apt;
  write_file(apt.bin.path("fail"), "");
  BOOST_TEST(run({"--corpus", "small", "--out", out}).exit_code == 1);
}

BOOST_AUTO_TEST_CASE(corpus_json_keeps_other_domains) {
  const ScratchFolder dir;
  const TokenIds vocabulary{257, 256};
  write_corpus_json(dir.path(), vocabulary, {{"a", {{"tokens", 1}}}, {"b", {{"tokens", 2}}}});
  const auto document = write_corpus_json(dir.path(), vocabulary, {{"b", {{"tokens", 3}}}});
  BOOST_TEST(document.at("domains").at("a").at("tokens").as_int64() == 1);
  BOOST_TEST(document.at("domains").at("b").at("tokens").as_int64() == 3);
  BOOST_TEST(document.at("vocab_size").as_int64() == 257);
  write_file(dir.path("corpus.json"), "{}");
  BOOST_CHECK_EXCEPTION(write_corpus_json(dir.path(), vocabulary, {}), IoError,
                        says("not a corpus description"));
}

// Case 94: the writer, not the text, ends a document.
BOOST_AUTO_TEST_CASE(case_94_documents_end_with_exactly_one_end_token) {
  const ScratchFolder dir;
  const ByteTokenizer tokenizer;
  const TokenIds vocabulary{tokenizer.vocab_size(), tokenizer.eod_id()};
  DomainWriter writer(dir.path(), "d", vocabulary);
  writer.add(Split::train, encode_document(tokenizer, "<|endoftext|>x<|endoftext|>"), 27);
  writer.finish();
  const TokenFile file(dir.path("d.train"));
  BOOST_TEST(file.documents() == 1);
  BOOST_TEST(file.tokens() == 28);
  for (int64_t i = 0; i < 27; ++i) BOOST_TEST(file.token(i) < 256);
  BOOST_TEST(file.token(27) == 256);
  for (const char* name : {"", "a/b", "..", "a b", "a=b", "a:b", "a,b"}) {
    BOOST_CHECK_THROW(DomainWriter(dir.path(), name, vocabulary), ConfigError);
  }
}

BOOST_AUTO_TEST_CASE(command_line_is_checked) {
  const PrepareOptions options = parse({"--input", "a.txt", "b.txt", "--out", "o"});
  BOOST_TEST(options.inputs.size() == 2u);
  BOOST_TEST(options.domain == "text");
  BOOST_TEST(options.cache == "o/packages");
  BOOST_TEST(!options.split.has_value());
  BOOST_TEST((parse({"--input", "a", "--out", "o", "--split", "valid"}).split == Split::valid));
  BOOST_TEST(parse({"--help"}).help);
  const std::vector<std::pair<std::vector<const char*>, const char*>> bad{
      {{}, "either --corpus SIZE or --input"},
      {{"--corpus", "small", "--input", "x", "--out", "o"}, "either --corpus SIZE or --input"},
      {{"--corpus", "small"}, "--out: a folder is needed"},
      {{"--input", "x", "--out", "o", "--split", "all"}, "--split: 'all' is not allowed"},
      {{"--input", "x", "--out", "o", "--keep-text", "t"}, "--keep-text"},
      {{"--inptu", "x"}, "inptu"},
      {{"--corp", "small", "--out", "o"}, "corp"},
      {{"--out"}, "out"},
      {{"stray"}, "smelt-prepare --help"},
      {{"--json", "--json"}, "json"},
  };
  for (const auto& [arguments, message] : bad) {
    BOOST_CHECK_EXCEPTION(parse(arguments), ConfigError, says(message));
  }
  BOOST_TEST(help_text().find("--text-key") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
