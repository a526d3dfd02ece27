// The parts of smelt-prepare: archives, text extraction, cleaning, cutting, splits, JSON lines.
#include <boost/test/unit_test.hpp>

#include "apps/common/process.h"
#include "apps/common/text_source.h"
#include "apps/prepare/clean.h"
#include "apps/prepare/extract.h"
#include "apps/prepare/html_text.h"
#include "apps/prepare/tar_reader.h"
#include "apps/prepare/text_bytes.h"
#include "tensor/error.h"
#include "tests/apps/archives.h"
#include "tests/apps/data_files.h"

using namespace smelt;
using namespace smelt::testing;

namespace {

// A reader over bytes in memory that hands out odd amounts, like a pipe.
TarReader::Source trickle(std::string bytes) {
  return [bytes = std::move(bytes), at = size_t{0}](char* data, size_t size) mutable {
    const size_t count = std::min({size, size_t{333}, bytes.size() - at});
    bytes.copy(data, count, at);
    at += count;
    return count;
  };
}

std::vector<std::pair<std::string, std::string>> files_of(const std::string& archive) {
  TarReader tar(trickle(archive), "test.tar");
  std::vector<std::pair<std::string, std::string>> files;
  TarMember member;
  while (tar.next(member)) {
    if (member.regular) files.emplace_back(member.name, tar.contents());
  }
  return files;
}

std::string pax_record(const std::string& key, const std::string& value) {
  const size_t rest = key.size() + value.size() + 3;  // blank, '=', line feed
  size_t length = rest + 1;
  while (rest + std::to_string(length).size() != length) ++length;
  return std::to_string(length) + ' ' + key + '=' + value + '\n';
}

// Prose of about `bytes` bytes that passes the filters.
std::string prose(size_t bytes, const std::string& seed = "word") {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) {
    text += seed + ' ' + std::string(static_cast<size_t>(1 + i % 9), 'e') + " and so on\n";
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tar)

BOOST_AUTO_TEST_CASE(reads_plain_prefixed_long_and_pax_names) {
  const std::string long_name = join({"dir/", std::string(200, 'n'), "/file"});
  const std::string archive =
      tar_member("./plain.txt", "hello") + tar_member("file", "with prefix", '0', "some/dir") +
      tar_member("././@LongLink", long_name + '\0', 'L') +
      tar_member("cut", std::string(513, 'x')) +
      tar_member("././@PaxHeader", pax_record("mtime", "1.5") + pax_record("path", "pax/name"),
                 'x') +
      tar_member("short", "pax") + tar_member("empty", "") + tar_end();
  const auto files = files_of(archive);
  BOOST_REQUIRE(files.size() == 5u);
  BOOST_TEST(files[0].first == "./plain.txt");
  BOOST_TEST(files[0].second == "hello");
  BOOST_TEST(files[1].first == "some/dir/file");
  BOOST_TEST(files[2].first == long_name);
  BOOST_TEST(files[2].second == std::string(513, 'x'));
  BOOST_TEST(files[3].first == "pax/name");
  BOOST_TEST(files[3].second == "pax");
  BOOST_TEST(files[4].second == "");
}

BOOST_AUTO_TEST_CASE(passes_over_links_folders_and_unread_members) {
  std::string link = tar_member("link", "", '2');
  link.replace(124, 11, "00000001000");  // a size without data, as some writers leave it
  std::string header = link.substr(0, 512);
  set_tar_checksum(header);
  const std::string archive = tar_member("dir/", "", '5') + header + tar_member("a", "skipped") +
                              tar_member("b", "taken") + tar_end();
  TarReader tar(trickle(archive), "test.tar");
  TarMember member;
  std::vector<std::string> names;
  std::string contents;
  while (tar.next(member)) {
    names.push_back(member.name + (member.regular ? "" : "*"));
    if (member.name == "b") contents = tar.contents();
  }
  BOOST_TEST(names == (std::vector<std::string>{"dir/*", "link*", "a", "b"}),
             boost::test_tools::per_element());
  BOOST_TEST(contents == "taken");
}

BOOST_AUTO_TEST_CASE(refuses_damage) {
  const std::string good = tar_member("a", "hello") + tar_end();
  std::string flipped = good;
  flipped[0] = 'b';
  BOOST_CHECK_EXCEPTION(files_of(flipped), IoError, says("wrong checksum"));
  BOOST_CHECK_EXCEPTION(files_of(good.substr(0, 300)), IoError, says("inside a header"));
  BOOST_CHECK_EXCEPTION(files_of(good.substr(0, 515)), IoError, says("middle of a member"));
  BOOST_CHECK_EXCEPTION(files_of(tar_member("x", "12 path=", 'x') + good), IoError,
                        says("malformed"));
  std::string huge = good;
  huge.replace(124, 12, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12);
  std::string header = huge.substr(0, 512);
  set_tar_checksum(header);
  BOOST_CHECK_EXCEPTION(files_of(header), IoError, says("impossible size"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(text_bytes)

BOOST_AUTO_TEST_CASE(tells_utf8_from_latin1) {
  BOOST_TEST(is_utf8("plain ascii, longer than eight bytes"));
  BOOST_TEST(is_utf8("\u00e9 \u20ac \U0001F600"));
  for (const char* bad : {"\x80", "\xC3", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "12345678\xE9t\xE9"}) {
    BOOST_TEST(!is_utf8(bad));
  }
  BOOST_TEST(decode_text("caf\xE9") == "caf\u00e9");
  BOOST_TEST(decode_text("caf\u00e9") == "caf\u00e9");
}

BOOST_AUTO_TEST_CASE(strips_unicode_space) {
  BOOST_TEST(strip_space(" \t\u00a0x y\u2003\n") == "x y");
  BOOST_TEST(strip_space("\u3000") == "");
  BOOST_TEST(strip_newlines("\n\n x \n") == " x ");
}

BOOST_AUTO_TEST_CASE(splits_paragraphs_at_blank_lines) {
  const auto parts = split_paragraphs("a\nb\n \t\n\n  c\n\nd");
  BOOST_REQUIRE(parts.size() == 3u);
  BOOST_TEST(parts[0] == "a\nb");
  BOOST_TEST(parts[1] == "  c");
  BOOST_TEST(parts[2] == "d");
  BOOST_TEST(split_paragraphs("x\n  ").size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(html)

BOOST_AUTO_TEST_CASE(keeps_text_and_structure) {
  BOOST_TEST(
      html_to_text("<html><head><title>T</title></head><body><h1>Head</h1>\n<p>One  <b>two</b>"
                   "\n three<br/>four</p><ul><li>a<LI>b</ul></body>") ==
      "\nHead\n\nOne two three\nfour\n\n- a\n- b\n");
  BOOST_TEST(html_to_text("<table><tr><td>1</td><td> 2</td></tr></table>") == "\n\n1\t2\n\n");
}

BOOST_AUTO_TEST_CASE(keeps_preformatted_text_as_it_stands) {
  BOOST_TEST(html_to_text("x <pre class=\"c\">\n  a &lt; <i>b</i>\n\n\n   c<br>d\n</pre > y") ==
             "x   a < b\n\n\n   c\nd y");
}

BOOST_AUTO_TEST_CASE(drops_what_is_no_prose) {
  BOOST_TEST(html_to_text("a<!-- <p> --><SCRIPT>if (a<b) {}</script ><nav x=1>menu</nav>b") ==
             "a b");
  BOOST_TEST(html_to_text("<header>kept</header>") == "kept");  // not <head>
  BOOST_TEST(html_to_text("1 < 2 <unfinished") == "1 < 2 <unfinished");
}

BOOST_AUTO_TEST_CASE(cuts_to_the_main_block) {
  const std::string filler(250, 'm');
  BOOST_TEST(html_to_text("menu<div class=x ROLE=\"main\" id=1>" + filler + "</div><footer>f") ==
             "\n" + filler + "\n");
  BOOST_TEST(html_to_text("menu<main>" + filler + "</main >after") == filler);
  // An end mark within the first 200 characters belongs to something else.
  BOOST_TEST(html_to_text("<div class=\"footer\">x</div>" + filler) == "\nx\n" + filler);
}

BOOST_AUTO_TEST_CASE(unescapes_references_like_a_browser) {
  BOOST_TEST(unescape_html("&lt;&amp;&quot;&apos;&nbsp;&hellip;&#65;&#x42;") ==
             "<&\"'\u00a0\u2026AB");
  BOOST_TEST(unescape_html("&copy 2020 &notit; &hellip &nosuch; & &; &#; &#x;") ==
             "\u00a9 2020 \u00acit; &hellip &nosuch; & &; &#; &#x;");
  BOOST_TEST(unescape_html("&#150;&#x80;&#0;&#xD800;&#99999999999;") ==
             "\u2013\u20ac\uFFFD\uFFFD\uFFFD");
  BOOST_TEST(unescape_html("a&#1;b&#xFFFE;c") == "abc");
}

BOOST_AUTO_TEST_CASE(drops_navigation_lines) {
  BOOST_TEST(html_to_text("<p>Next: A, Up: B &nbsp; [Contents][Index]</p><p>text\u00b6</p>") ==
             "\n\ntext\n");
}

BOOST_AUTO_TEST_CASE(finds_the_latin1_declaration) {
  BOOST_TEST(declares_latin1("<meta content='text/html; CHARSET=ISO-8859-1'>"));
  BOOST_TEST(declares_latin1("<meta charset=\"iso-8859-15\">"));
  BOOST_TEST(!declares_latin1("<meta charset=utf-8>"));
  BOOST_TEST(!declares_latin1(std::string(2000, ' ') + "charset=iso-8859-1"));
}

BOOST_AUTO_TEST_CASE(boilerplate_goes_only_from_the_edges_of_enough_pages) {
  const auto pages = [](int count) {
    std::vector<Document> documents;
    for (int i = 0; i < count; ++i) {
      std::string text = join({" menu \npage ", std::to_string(i), "\n"});
      for (int line = 0; line < 40; ++line)
        text += std::to_string(line) + (line == 20 ? "" : "x") +
                std::to_string(line == 20 ? 0 : i) + "\n";
      documents.push_back({join({"p", std::to_string(i)}), text + "footer"});
    }
    return documents;
  };
  auto few = pages(7), enough = pages(8);
  strip_boilerplate(few);
  BOOST_TEST(few[0].text == pages(7)[0].text);
  strip_boilerplate(enough);
  BOOST_TEST(enough[3].text.starts_with("page 3\n"));
  BOOST_TEST(enough[3].text.find("footer") == std::string::npos);
  BOOST_TEST(enough[3].text.find("\n200\n") != std::string::npos);  // common, but in the middle
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(cleaning)

BOOST_AUTO_TEST_CASE(normalises_lines_and_controls) {
  BOOST_TEST(normalise("a\r\nb\rc  \t\nd\u00a0e\ufeff\x07") == "a\nb\nc\nd e\n");
  BOOST_TEST(normalise("\n\n x\n\n\n \n\n\ny") == " x\n\n\ny\n");
  BOOST_TEST(normalise("\x1b[1;31mred\x1b[0m \x1b[ \x1b") == "red [ \n");
  BOOST_TEST(normalise("") == "\n");
  BOOST_TEST(normalise("\x1b") == "\n");
  // Exactly three line feeds stay three, more become three, blanks between or not.
  BOOST_TEST(normalise("a\n\n\nb") == "a\n\n\nb\n");
  BOOST_TEST(normalise("a\n \n\t\n \n \nb") == "a\n\n\nb\n");
}

BOOST_AUTO_TEST_CASE(cuts_at_empty_lines_then_lines_then_characters) {
  const auto cut = [](const std::string& text, size_t limit) {
    std::vector<std::string> parts;
    std::string whole;
    for (const auto part : cut_pieces(text, limit)) {
      BOOST_TEST(part.size() <= limit);
      parts.emplace_back(part);
      whole += part;
    }
    BOOST_TEST(whole == text);
    return parts;
  };
  BOOST_TEST(cut("short", 10).size() == 1u);
  BOOST_TEST(cut("0123456789", 10).size() == 1u);
  BOOST_TEST(cut("aaaaaa\n\nbbb\ncc", 12)[0] == "aaaaaa\n\n");     // empty line in the second half
  BOOST_TEST(cut("a\n\nbbbbbb\ncccc", 12)[0] == "a\n\nbbbbbb\n");  // only in the first half: line
  BOOST_TEST(cut("\nbbbbbbbbbbbbbbb", 12)[0] == "\nbbbbbbbbbbb");  // a first line feed is no place
  BOOST_TEST(cut("aaa\u20ac\u20ac\u20ac", 10)[0] == "aaa\u20ac\u20ac");  // between characters
}

BOOST_AUTO_TEST_CASE(filters_short_wide_and_letterless_documents) {
  const auto kept = [](const std::string& text, CleanRules rules = {}) {
    return clean({{"f", text}}, rules).pieces.size();
  };
  BOOST_TEST(kept(prose(300)) == 1u);
  BOOST_TEST(kept(std::string(198, 'a') + "\n") == 0u);  // 199 bytes
  BOOST_TEST(kept(std::string(199, 'a') + "\n") == 1u);  // 200 bytes
  BOOST_TEST(kept(std::string(2100, 'a')) == 0u);
  BOOST_TEST(kept(std::string(2100, 'a'), {.limit_line_length = false}) == 1u);
  BOOST_TEST(kept(std::string(109, 'a') + std::string(91, '7')) == 0u);  // 110 of 201 letters
  BOOST_TEST(kept(std::string(110, 'a') + std::string(90, '7')) == 1u);  // 111 of 201
  BOOST_TEST(kept(prose(300) + std::string(1, '\0')) == 0u);
  BOOST_TEST(kept(prose(5000) + std::string(1, '\0')) == 1u);  // NUL after the first 4096
}

BOOST_AUTO_TEST_CASE(drops_repeats_and_numbers_pieces) {
  const CleanResult result =
      clean({{"a", prose(300)}, {"b", join({"\n", prose(300)})}, {"c", prose(900, "other")}},
            {.piece_limit = 400});
  BOOST_TEST(result.documents == 2);
  BOOST_REQUIRE(result.pieces.size() >= 3u);
  BOOST_TEST(result.pieces[0].id == "a");
  BOOST_TEST(result.pieces[1].id == "c#0000");
  BOOST_TEST(result.pieces[2].id == "c#0001");
  BOOST_TEST((result.pieces[1].hash == content_hash(result.pieces[1].text)));
}

BOOST_AUTO_TEST_CASE(splits_are_those_of_the_published_corpus) {
  const std::vector<std::pair<std::string, Split>> golden{
      {"beancount/usr/share/doc/beancount/examples/vesting/vesting.beancount", Split::valid},  // 0
      {"dict-devil/usr/share/dictd/devil.dict.dz#00007", Split::valid},                        // 24
      {"abs-guide/usr/share/doc/abs-guide/html/networkprogramming.html", Split::test},         // 25
      {"fortunes/usr/share/games/fortunes/startrek#00000", Split::test},                       // 49
      {"golang-google-grpc-dev/usr/share/gocode/src/google.golang.org/grpc/balancer/"
       "weightedroundrobin/weightedwoundrobin_test.go",
       Split::train},                                                      // 50
      {"dict-foldoc/usr/share/dictd/foldoc.dict.dz#00087", Split::train},  // 999
  };
  for (const auto& [id, split] : golden) BOOST_TEST((split_of(id) == split), id);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(extraction)

BOOST_AUTO_TEST_CASE(globs_cross_folders_and_exclude) {
  const PathFilter filter("*.go *.c !*/testdata/* !*.[xy].c");
  BOOST_TEST(filter.matches("a/b/c.go"));
  BOOST_TEST(filter.matches("x.c"));
  BOOST_TEST(!filter.matches("a/testdata/b.go"));
  BOOST_TEST(!filter.matches("a.x.c"));
  BOOST_TEST(!filter.matches("a.rs"));
  BOOST_TEST(!filter.matches("x.C"));
}

BOOST_AUTO_TEST_CASE(inflates_all_gzip_members_and_refuses_damage) {
  const std::string one = gzip_bytes("first "), two = gzip_bytes("second");
  BOOST_TEST(gunzip(one + two, "f") == "first second");
  BOOST_TEST(gunzip(one + std::string(100, '\0'), "f") == "first ");
  for (size_t length = 1; length < one.size(); ++length) {
    BOOST_CHECK_THROW(gunzip(one.substr(0, length), "f"), IoError);
  }
  std::string flipped = one;
  flipped[12] = static_cast<char>(flipped[12] ^ 1);
  BOOST_CHECK_EXCEPTION(gunzip(flipped, "some.gz"), IoError, says("some.gz"));
}

BOOST_AUTO_TEST_CASE(text_is_decoded_and_decompressed) {
  Extractor extractor("text");
  extractor.add("b.txt", "caf\xE9");
  extractor.add("a.txt.gz", gzip_bytes("zipped"));
  const auto documents = extractor.finish();
  BOOST_REQUIRE(documents.size() == 2u);
  BOOST_TEST(documents[0].path == "b.txt");
  BOOST_TEST(documents[0].text == "caf\u00e9");
  BOOST_TEST(documents[1].path == "a.txt.gz");
  BOOST_TEST(documents[1].text == "zipped");
}

BOOST_AUTO_TEST_CASE(html_in_declared_latin1) {
  Extractor extractor("html");
  // Valid UTF-8 by chance, but declared Latin-1.
  extractor.add("p.html", "<body><!-- charset=iso-8859-1 -->\xC3\xA9</body>");
  BOOST_TEST(extractor.finish()[0].text == " \u00c3\u00a9");
}

BOOST_AUTO_TEST_CASE(fortunes_are_joined_to_documents) {
  Extractor extractor("fortune");
  extractor.add("f", "one\n%\n\ntwo\n%\n  \n%\nfour % still\n");
  const auto documents = extractor.finish();
  BOOST_REQUIRE(documents.size() == 1u);
  BOOST_TEST(documents[0].path == "f#00000");
  BOOST_TEST(documents[0].text == "one\n\ntwo\n\nfour % still");
}

BOOST_AUTO_TEST_CASE(paragraphs_are_joined_to_sixteen_kilobytes) {
  Extractor extractor("paras");
  const std::string half(9000, 'x');
  extractor.add("f", half + "\n\n" + half + "\n \n" + half);
  const auto documents = extractor.finish();
  BOOST_REQUIRE(documents.size() == 2u);
  BOOST_TEST(documents[0].text == half + "\n\n" + half);
  BOOST_TEST(documents[1].path == "f#00001");
  BOOST_TEST(documents[1].text == half);
}

BOOST_AUTO_TEST_CASE(dictionary_articles_come_once_in_order_of_place) {
  const std::string text = "header\nalpha: first\nbeta: \xE9t\xE9\ngamma\n";
  // Offsets and lengths in base 64: A = 0, H = 7, U = 20.
  const std::string index =
      "00-database-info\tA\tH\nbeta\tU\tK\nalpha\tH\tN\nfirst\tK\tC\ngamma\te\tG\nshort\n";
  Extractor extractor("dict");
  extractor.add("d/x.index", index);
  extractor.add("d/x.dict.dz", gzip_bytes(text));
  const auto documents = extractor.finish();
  BOOST_REQUIRE(documents.size() == 1u);
  BOOST_TEST(documents[0].path == "d/x.dict.dz#00000");
  BOOST_TEST(documents[0].text == "alpha: first\n\nbeta: \u00e9t\u00e9\n\ngamma");
}

BOOST_AUTO_TEST_CASE(dictionary_damage_is_named) {
  Extractor lonely("dict");
  lonely.add("x.index", "");
  BOOST_CHECK_EXCEPTION(lonely.finish(), IoError, says("one .dz and one .index"));
  Extractor extractor("dict");
  extractor.add("x.dz", gzip_bytes("text"));
  extractor.add("x.index", "word\t!\tA\n");
  BOOST_CHECK_EXCEPTION(extractor.finish(), IoError, says("'word' has no valid position"));
}

BOOST_AUTO_TEST_CASE(sword_blocks_lose_notes_and_markup) {
  const auto u32 = [](size_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
    return bytes;
  };
  const std::string first = deflate_bytes(
      "<verse n=1>In the <note type=\"x\">no <b>bold</b></note>beginning</verse><verse/>And");
  const std::string second = deflate_bytes("the <i>end</i>");
  const std::string broken = "not zlib";
  const std::string blocks = first + broken + second;
  const std::string index = u32(0) + u32(first.size()) + u32(99) + u32(first.size()) +
                            u32(broken.size()) + u32(99) + u32(first.size() + broken.size()) +
                            u32(second.size()) + u32(99) + "tail";
  Extractor extractor("sword");
  extractor.add("m/ot.bzz", blocks);
  extractor.add("m/ot.bzs", index);
  extractor.add("m/nt.bzs", "");
  extractor.add("m/nt.bzz", "");
  const auto documents = extractor.finish();
  BOOST_REQUIRE(documents.size() == 1u);
  BOOST_TEST(documents[0].path == "m/ot.bzs#00000");
  BOOST_TEST(documents[0].text == " In the beginning And\nthe end");
}

BOOST_AUTO_TEST_CASE(methods_have_their_own_limits) {
  BOOST_TEST(Extractor("text").rules().piece_limit == 131072u);
  BOOST_TEST(Extractor("html").rules().piece_limit == 32768u);
  BOOST_TEST(Extractor("fortune").rules().limit_line_length);
  BOOST_TEST(!Extractor("paras").rules().limit_line_length);
  BOOST_CHECK_EXCEPTION(Extractor("gosql"), ConfigError, says("'gosql' is not supported"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(text_source)

namespace {

std::vector<std::pair<std::string, int64_t>> documents_of(const std::string& path,
                                                          TextOptions options = {}) {
  std::vector<std::pair<std::string, int64_t>> documents;
  read_documents(path, options, [&](const std::string& text, int64_t line) {
    documents.emplace_back(text, line);
  });
  return documents;
}

const std::string kLines =
    "\xEF\xBB\xBF{\"text\":\"one\",\"id\":7}\n\n  \r\n{\"text\":\"tw\\u0000o\"}\r\n"
    "{\"text\":\"\"}\n{\"text\":\"a\\ud800b\\udc00c\\ud83d\\ude00d\\\\ud800\"}\n{\"text\":"
    "\"last\"}";

void check_lines(const std::vector<std::pair<std::string, int64_t>>& documents) {
  BOOST_REQUIRE(documents.size() == 4u);
  BOOST_TEST(documents[0].first == "one");
  BOOST_TEST(documents[0].second == 1);
  BOOST_TEST(documents[1].first == std::string("tw\0o", 4));
  BOOST_TEST(documents[1].second == 4);
  BOOST_TEST(documents[2].first == "a\uFFFDb\uFFFDc\U0001F600d\\ud800");
  BOOST_TEST(documents[3].first == "last");
  BOOST_TEST(documents[3].second == 7);
}

}  // namespace

BOOST_AUTO_TEST_CASE(json_lines_with_ragged_edges) {
  const ScratchFolder dir;
  write_file(dir.path("a.jsonl"), kLines);
  check_lines(documents_of(dir.path("a.jsonl")));
  const TextSummary summary = read_documents(dir.path("a.jsonl"), {}, [](auto&&, int64_t) {});
  BOOST_TEST(summary.documents == 4);
  BOOST_TEST(summary.empty == 1);
}

BOOST_AUTO_TEST_CASE(compression_is_told_by_the_first_bytes) {
  const ScratchFolder dir;
  const size_t middle = kLines.size() / 2;
  const std::string head = kLines.substr(0, middle), tail = kLines.substr(middle);
  // Several members or frames; the names lie about the kind.
  write_file(dir.path("a.jsonl.zst"), gzip_bytes(head) + gzip_bytes(tail));
  write_file(dir.path("b.jsonl.gz"), zstd_bytes(head) + zstd_bytes(tail));
  write_file(dir.path("c.json"), zstd_bytes(kLines));
  for (const char* name : {"a.jsonl.zst", "b.jsonl.gz", "c.json"}) {
    check_lines(documents_of(dir.path(name)));
  }
}

BOOST_AUTO_TEST_CASE(files_cut_off_anywhere_are_refused) {
  const ScratchFolder dir;
  for (const std::string& packed : {gzip_bytes(kLines), zstd_bytes(kLines)}) {
    for (size_t length = 1; length < packed.size(); ++length) {
      write_file(dir.path("a.jsonl"), packed.substr(0, length));
      BOOST_TEST_CONTEXT(length << " of " << packed.size()) {
        BOOST_CHECK_THROW(documents_of(dir.path("a.jsonl")), IoError);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(long_lines_cross_read_blocks) {
  const ScratchFolder dir;
  const std::string big(3'000'000, 'x');
  write_file(dir.path("a.jsonl"), "{\"text\":\"" + big + "\"}\n{\"text\":\"y\"}\n");
  const auto documents = documents_of(dir.path("a.jsonl"));
  BOOST_REQUIRE(documents.size() == 2u);
  BOOST_TEST((documents[0].first == big));
  BOOST_CHECK_EXCEPTION(documents_of(dir.path("a.jsonl"), {.max_record_bytes = 2'000'000}), IoError,
                        says("a.jsonl:1: the line is longer than 2000000"));
}

BOOST_AUTO_TEST_CASE(bad_lines_are_named_by_file_and_line) {
  const ScratchFolder dir;
  const auto refuse = [&](const std::string& line, const std::string& message) {
    write_file(dir.path("a.jsonl"), "{\"text\":\"fine\"}\n" + line + "\n");
    BOOST_CHECK_EXCEPTION(documents_of(dir.path("a.jsonl")), IoError,
                          says("a.jsonl:2: " + message));
  };
  refuse("{\"text\":", "not valid JSON");
  refuse("{\"text\":\"\xFF\"}", "not valid JSON");
  refuse("[1]", "expected a JSON object");
  refuse("{\"body\":\"x\"}", "the key 'text' is missing");
  refuse("{\"text\":5}", "the key 'text' is not a string");
  write_file(dir.path("b.jsonl"), "{\"body\":\"x\"}");
  BOOST_TEST(documents_of(dir.path("b.jsonl"), {.text_key = "body"})[0].first == "x");
}

BOOST_AUTO_TEST_CASE(a_plain_file_is_one_document_of_exact_bytes) {
  const ScratchFolder dir;
  const std::string bytes("<|endoftext|>\r\n\0\xFF", 17);
  write_file(dir.path("a.txt"), bytes);
  const auto documents = documents_of(dir.path("a.txt"));
  BOOST_REQUIRE(documents.size() == 1u);
  BOOST_TEST(documents[0].first == bytes);
  BOOST_TEST(documents[0].second == 1);
  write_file(dir.path("b.txt"), "");
  BOOST_CHECK_EXCEPTION(documents_of(dir.path("b.txt")), IoError, says("b.txt: the file is empty"));
  BOOST_CHECK_EXCEPTION(documents_of(dir.path("none")), IoError, says("none: cannot read"));
  BOOST_CHECK_EXCEPTION(documents_of(dir.path()), IoError, says("is a folder"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(process)

BOOST_AUTO_TEST_CASE(collects_output_and_exit_codes) {
  const ScratchFolder dir;
  const CommandResult result = run_command({"sh", "-c", "pwd; echo oops >&2; exit 3"}, dir.path());
  BOOST_TEST(result.exit_code == 3);
  BOOST_TEST(result.output.find(dir.path()) != std::string::npos);
  BOOST_TEST(result.output.find("oops") != std::string::npos);
  BOOST_TEST(run_command({"sh", "-c", "kill -9 $$"}, "").exit_code == 137);
  BOOST_CHECK_EXCEPTION(run_command({"no-such-program-here"}, ""), RunError,
                        says("no-such-program-here: cannot start"));
}

BOOST_AUTO_TEST_CASE(streams_and_reports_failure) {
  CommandStream good({"printf", "abc"});
  std::string text(10, '\0');
  BOOST_TEST(good.read(text.data(), text.size()) == 3u);
  BOOST_CHECK_NO_THROW(good.finish());
  CommandStream bad({"sh", "-c", "echo why >&2; echo more >&2; exit 4"});
  BOOST_CHECK_EXCEPTION(bad.finish(), RunError, says("sh: failed with exit code 4: why"));
  BOOST_CHECK_THROW(CommandStream({"no-such-program-here"}), RunError);
  // Dropping an endless stream ends its process.
  CommandStream endless({"yes"});
  BOOST_TEST(endless.read(text.data(), text.size()) > 0u);
}

BOOST_AUTO_TEST_SUITE_END()
