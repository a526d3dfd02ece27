#include "apps/prepare/html_text.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <unordered_map>
#include <unordered_set>

#include "apps/common/tokenizer/utf8.h"
#include "apps/prepare/text_bytes.h"

namespace smelt {
namespace {

constexpr size_t npos = std::string_view::npos;

bool is_word(char c) {
  return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_blank(char c) { return c == ' ' || c == '\t'; }

// The element name at `at`, in lower case; it ends where a word ends.
std::string name_at(std::string_view text, size_t at) {
  std::string name;
  while (at < text.size() && is_word(text[at])) name.push_back(lower(text[at++]));
  return name;
}

// End of "</name >" if it stands at `at`, else npos.
size_t closing_tag_end(std::string_view text, size_t at, std::string_view name) {
  if (!has_word_at(text, at, "</") || !has_word_at(text, at + 2, name)) return npos;
  at += 2 + name.size();
  while (at < text.size()) {
    const size_t length = space_bytes(text, at);
    if (length == 0) break;
    at += length;
  }
  return at < text.size() && text[at] == '>' ? at + 1 : npos;
}

// Where the next "</name >" starts and ends.
struct Range {
  size_t begin = npos, end = npos;
};
Range find_closing_tag(std::string_view text, size_t from, std::string_view name) {
  for (size_t at = text.find("</", from); at != npos; at = text.find("</", at + 2)) {
    const size_t end = closing_tag_end(text, at, name);
    if (end != npos) return {at, end};
  }
  return {};
}

// Replaces what `match` recognises at a '<': match(text, at) returns the end of the match or npos,
// emit(out, at, end) writes the replacement.
template <typename Match, typename Emit>
std::string replace_at_angle(std::string_view text, Match match, Emit emit) {
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (size_t at = text.find('<'); at != npos;) {
    const size_t end = match(text, at);
    if (end == npos) {
      at = text.find('<', at + 1);
      continue;
    }
    out.append(text.substr(begin, at - begin));
    emit(out, at, end);
    begin = end;
    at = text.find('<', end);
  }
  out.append(text.substr(begin));
  return out;
}

using Names = std::unordered_set<std::string>;

// End of "<name ...>" (or "</name ...>" where `closing` is set) if name is one of `names`.
size_t element_end(std::string_view text, size_t at, const Names& names, bool closing) {
  size_t name = at + 1;
  if (closing && name < text.size() && text[name] == '/') ++name;
  if (!names.contains(name_at(text, name))) return npos;
  const size_t end = text.find('>', name);
  return end == npos ? npos : end + 1;
}

std::string replace_elements(std::string_view text, const Names& names, bool closing,
                             std::string_view replacement) {
  return replace_at_angle(
      text, [&](std::string_view t, size_t at) { return element_end(t, at, names, closing); },
      [&](std::string& out, size_t, size_t) { out.append(replacement); });
}

std::string remove_tags(std::string_view text) {
  return replace_at_angle(
      text,
      [](std::string_view t, size_t at) {
        const char c = at + 1 < t.size() ? t[at + 1] : '\0';
        const bool tag = c == '!' || c == '/' || c == '?' || (lower(c) >= 'a' && lower(c) <= 'z');
        const size_t end = tag ? t.find('>', at) : npos;
        return end == npos ? npos : end + 1;
      },
      [](std::string&, size_t, size_t) {});
}

const Names& blocks() {
  static const Names names{
      "p",          "div",     "h1",       "h2",      "h3",    "h4",    "h5",      "h6",
      "ul",         "ol",      "dl",       "dt",      "table", "tbody", "thead",   "tr",
      "blockquote", "section", "hr",       "article", "pre",   "form",  "address", "center",
      "title",      "caption", "fieldset", "para",    "sect1", "sect2", "page",    "chapter"};
  return names;
}

// Comments and whole elements without prose become a blank.
std::string drop_hidden(std::string_view text) {
  static constexpr std::array<std::string_view, 6> kHidden{"script", "style", "head",
                                                           "nav",    "svg",   "math"};
  std::array<bool, 6> unclosed{};  // no closing tag further on: do not search again
  bool comments_closed = true;
  return replace_at_angle(
      text,
      [&](std::string_view t, size_t at) {
        if (comments_closed && t.substr(at, 4) == "<!--") {
          const size_t end = t.find("-->", at + 4);
          if (end != npos) return end + 3;
          comments_closed = false;
        }
        const std::string name = name_at(t, at + 1);
        for (size_t i = 0; i < kHidden.size(); ++i) {
          if (name != kHidden[i] || unclosed[i]) continue;
          const size_t end = find_closing_tag(t, at + 1 + name.size(), name).end;
          unclosed[i] = end == npos;
          return end;
        }
        return npos;
      },
      [](std::string& out, size_t, size_t) { out.push_back(' '); });
}

// Takes the contents of <pre> elements out; a numbered mark between \x01 stands for each.
std::string take_preformatted(std::string_view text, std::vector<std::string>& kept) {
  Range closing;
  size_t contents = 0;
  return replace_at_angle(
      text,
      [&](std::string_view t, size_t at) {
        const size_t open_end = element_end(t, at, {"pre"}, false);
        if (open_end == npos) return npos;
        contents = open_end;
        closing = find_closing_tag(t, open_end, "pre");
        return closing.end;
      },
      [&](std::string& out, size_t, size_t) {
        out += "\n\x01" + std::to_string(kept.size()) + "\x01\n";
        kept.emplace_back(text.substr(contents, closing.begin - contents));
      });
}

std::string put_preformatted(std::string_view text, const std::vector<std::string>& kept) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1, index = 0;
    if (text[at] == '\x01') {
      while (end < text.size() && text[end] >= '0' && text[end] <= '9' && index < kept.size()) {
        index = index * 10 + static_cast<size_t>(text[end++] - '0');
      }
      if (end > at + 1 && end < text.size() && text[end] == '\x01' && index < kept.size()) {
        const std::string lines = replace_elements(kept[index], {"br"}, false, "\n");
        const std::string plain = unescape_html(remove_tags(lines));
        out += strip_newlines(plain);
        at = end + 1;
        continue;
      }
    }
    out.push_back(text[at++]);
  }
  return out;
}

// Runs of ASCII white space become one blank.
std::string collapse_space(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const bool space = is_blank(c) || c == '\n' || c == '\r' || c == '\f';
    if (!space) {
      out.push_back(c);
    } else if (out.empty() || out.back() != ' ') {
      out.push_back(' ');
    }
  }
  return out;
}

// Blanks beside a line feed go, other runs become a tab if they hold one, else a space; at most one
// empty line in a row.
std::string tidy_lines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  int newlines = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n') {
      if (++newlines <= 2) out.push_back('\n');
      ++at;
    } else if (is_blank(text[at])) {
      size_t end = at;
      bool tab = false;
      while (end < text.size() && is_blank(text[end])) tab |= text[end++] == '\t';
      const bool beside =
          (at > 0 && text[at - 1] == '\n') || (end < text.size() && text[end] == '\n');
      if (!beside) {
        out.push_back(tab ? '\t' : ' ');
        newlines = 0;
      }
      at = end;
    } else {
      newlines = 0;
      out.push_back(text[at++]);
    }
  }
  return out;
}

std::string body_text(std::string_view page) {
  std::vector<std::string> preformatted;
  std::string text = take_preformatted(drop_hidden(page), preformatted);
  text = collapse_space(text);
  text = replace_elements(text, blocks(), true, "\n");
  text = replace_elements(text, {"li", "item"}, false, "\n- ");
  text = replace_elements(text, {"td", "th", "dd"}, false, "\t");
  text = replace_elements(text, {"br"}, false, "\n");
  text = tidy_lines(unescape_html(remove_tags(text)));
  return preformatted.empty() ? text : put_preformatted(text, preformatted);
}

// Whether the main block of the page starts at `at`.
bool starts_main(std::string_view page, size_t at) {
  const std::string name = name_at(page, at + 1);
  const size_t end = page.find('>', at);
  if (end == npos) return false;
  if (name == "main" || name == "article") return true;
  if (!has_word_at(page, at, "<div")) return false;
  if (has_word_at(page, at, "<div id=\"main\">")) return true;
  const std::string_view tag = page.substr(at, end - at);
  for (size_t role = find_word(tag, "role=\"main\"", 4); role != npos;
       role = find_word(tag, "role=\"main\"", role + 1)) {
    if (!is_word(tag[role - 1])) return true;
  }
  return false;
}

// Whether what follows the main block starts at `at`.
bool ends_main(std::string_view page, size_t at) {
  static constexpr std::array<std::string_view, 4> kPrefixes{
      "<div class=\"sphinxsidebar\"", "<div id=\"tocframe\"", "<div class=\"navfooter\"",
      "<div class=\"footer\""};
  if (std::any_of(kPrefixes.begin(), kPrefixes.end(),
                  [&](std::string_view prefix) { return has_word_at(page, at, prefix); })) {
    return true;
  }
  return closing_tag_end(page, at, "main") != npos || name_at(page, at + 1) == "footer";
}

template <typename Match>
size_t find_angle(std::string_view text, Match match) {
  size_t at = text.find('<');
  while (at != npos && !match(text, at)) at = text.find('<', at + 1);
  return at;
}

// "Next: ..., Up: ..., [Contents]" lines of Texinfo pages.
bool is_navigation(std::string_view line) {
  for (const std::string_view start : {"Next: ", "Previous: ", "Prev: ", "Up: "}) {
    if (!line.starts_with(start)) continue;
    const std::string_view rest = line.substr(start.size());
    return rest.find("[Contents]") != npos || rest.find("Up: ") != npos ||
           rest.find("Index]") != npos;
  }
  return false;
}

// Drops navigation lines and the pilcrow that ends headings.
std::string drop_navigation(std::string_view text) {
  static constexpr std::string_view kPilcrow = "\u00b6";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == npos ? text.size() : end + 1);
    if (end == npos) {
      out += line;
      break;
    }
    if (is_navigation(line)) continue;
    if (line.ends_with(kPilcrow)) line.remove_suffix(kPilcrow.size());
    out += line;
    out.push_back('\n');
  }
  return out;
}

struct Reference {
  std::string_view name;
  char32_t code;
};
constexpr Reference kReferences[] = {
#include "apps/prepare/html_entities.inc"
};

// Code point of a named reference, 0 if unknown.
char32_t reference_code(std::string_view name) {
  static const std::unordered_map<std::string_view, char32_t> table = [] {
    std::unordered_map<std::string_view, char32_t> result;
    for (const Reference& reference : kReferences) result[reference.name] = reference.code;
    return result;
  }();
  const auto found = table.find(name);
  return found == table.end() ? 0 : found->second;
}

// Names that HTML 5 also accepts without a semicolon: exactly those of Latin-1, except apos.
bool needs_no_semicolon(std::string_view name, char32_t code) {
  return code != 0 && code <= 0xFF && name != "apos";
}

// Numeric references that HTML 5 redirects: Windows-1252 in place of C1 controls.
constexpr std::array<char32_t, 32> kWindows1252{
    0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8D,   0x017D, 0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178};

void append_numeric(std::string& out, char32_t code) {
  if (code >= 0x80 && code <= 0x9F) return append_character(out, kWindows1252[code - 0x80]);
  if (code == 0 || (code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) {
    return append_character(out, 0xFFFD);
  }
  const bool control = code < 0x20 && code != '\t' && code != '\n' && code != '\f' && code != '\r';
  const bool noncharacter = (code >= 0xFDD0 && code <= 0xFDEF) || (code & 0xFFFE) == 0xFFFE;
  if (!control && !noncharacter && code != 0x7F) append_character(out, code);
}

// Handles "&#..." at `at`; returns its end, or `at` if it is no reference.
size_t unescape_numeric(std::string& out, std::string_view text, size_t at) {
  size_t digits = at + 2;
  const bool hex = digits < text.size() && lower(text[digits]) == 'x';
  if (hex) ++digits;
  size_t end = digits;
  char32_t code = 0;
  for (; end < text.size(); ++end) {
    const char c = lower(text[end]);
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && !(hex && c >= 'a' && c <= 'f')) break;
    const auto digit = static_cast<char32_t>(decimal ? c - '0' : c - 'a' + 10);
    code = std::min<char32_t>(code * (hex ? 16 : 10) + digit, 0x110000);
  }
  if (end == digits) return at;
  append_numeric(out, code);
  return end < text.size() && text[end] == ';' ? end + 1 : end;
}

// Handles "&name" at `at`; returns its end, or `at` if it is no reference.
size_t unescape_named(std::string& out, std::string_view text, size_t at) {
  constexpr size_t kLongest = 32;
  const size_t stop = text.find_first_of(std::string_view("\t\n\f <&#;"), at + 1);
  const std::string_view name =
      text.substr(at + 1, std::min(kLongest, (stop == npos ? text.size() : stop) - at - 1));
  const size_t end = at + 1 + name.size();
  const char32_t code = reference_code(name);
  if (code != 0 && end < text.size() && text[end] == ';') {
    append_character(out, code);
    return end + 1;
  }
  for (size_t length = name.size(); length >= 2; --length) {
    const std::string_view start = name.substr(0, length);
    const char32_t legacy = reference_code(start);
    if (!needs_no_semicolon(start, legacy)) continue;
    append_character(out, legacy);
    return at + 1 + length;
  }
  return at;
}

}  // namespace

std::string unescape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  while (at < text.size()) {
    const size_t next = std::min(text.find('&', at), text.size());
    out.append(text.substr(at, next - at));
    at = next;
    if (at == text.size()) break;
    const bool numeric = at + 1 < text.size() && text[at + 1] == '#';
    const size_t end = numeric ? unescape_numeric(out, text, at) : unescape_named(out, text, at);
    if (end == at)
      out.push_back(text[at++]);
    else
      at = end;
  }
  return out;
}

std::string html_to_text(std::string_view page) {
  constexpr size_t kShortestMain = 200;  // characters; an end mark before that is part of a header
  const size_t begin = find_angle(page, starts_main);
  if (begin != npos) page.remove_prefix(begin);
  const size_t end = find_angle(page, ends_main);
  if (end != npos && count_characters(page.substr(0, end)) > kShortestMain) {
    page = page.substr(0, end);
  }
  return drop_navigation(body_text(page));
}

bool declares_latin1(std::string_view page) {
  page = page.substr(0, prefix_bytes(page, 2000));
  constexpr std::string_view kCharset = "charset=";
  for (size_t at = find_word(page, kCharset); at != npos; at = find_word(page, kCharset, at + 1)) {
    size_t value = at + kCharset.size();
    if (value < page.size() && (page[value] == '"' || page[value] == '\'')) ++value;
    if (has_word_at(page, value, "iso-8859-1")) return true;
  }
  return false;
}

void strip_boilerplate(std::vector<Document>& documents) {
  constexpr size_t kFewest = 8, kEdge = 15;
  if (documents.size() < kFewest) return;

  struct Page {
    std::vector<std::string_view> lines;
    std::vector<size_t> edges;  // numbers of the first and last lines with text, ascending
  };
  std::vector<Page> pages;
  std::unordered_map<std::string_view, size_t> frequency;
  for (const Document& document : documents) {
    Page& page = pages.emplace_back();
    page.lines = split_at(document.text, "\n");
    std::vector<size_t> filled;
    for (size_t i = 0; i < page.lines.size(); ++i) {
      if (!strip_space(page.lines[i]).empty()) filled.push_back(i);
    }
    std::unordered_set<std::string_view> distinct;
    for (size_t i = 0; i < filled.size(); ++i) {
      if (i >= kEdge && i + kEdge < filled.size()) continue;
      page.edges.push_back(filled[i]);
      distinct.insert(strip_space(page.lines[filled[i]]));
    }
    for (const std::string_view line : distinct) ++frequency[line];
  }

  const double limit = std::max(6.0, 0.05 * static_cast<double>(documents.size()));
  std::vector<std::string> texts;
  for (const Page& page : pages) {
    std::string& text = texts.emplace_back();
    size_t edge = 0;
    bool first = true;
    for (size_t i = 0; i < page.lines.size(); ++i) {
      if (edge < page.edges.size() && page.edges[edge] == i) {
        ++edge;
        if (static_cast<double>(frequency[strip_space(page.lines[i])]) > limit) continue;
      }
      if (!first) text.push_back('\n');
      first = false;
      text += page.lines[i];
    }
  }
  // Only now: the lines above point into the old texts.
  for (size_t d = 0; d < documents.size(); ++d) documents[d].text = std::move(texts[d]);
}

}  // namespace smelt
