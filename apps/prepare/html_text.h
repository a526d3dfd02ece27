// HTML to plain text for training: the main block of the page, no scripts, styles, navigation or
// drawings; block elements end lines, list items become dashes, table cells tabs, <pre> is kept as
// it stands. It matches tags textually, like the published description of the corpus, and builds no
// tree: its output must be the same bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smelt {

/// One file's text and its path inside the package.
struct Document {
  std::string path, text;
};

/// The text of a page (UTF-8).
std::string html_to_text(std::string_view page);

/// Replaces character references: &#38; &#x26; &amp; and, as HTML 5 asks, the old Latin-1 names
/// also without semicolon. Unknown names stay as they are.
std::string unescape_html(std::string_view text);

/// Whether the first 2000 characters declare ISO-8859-1.
bool declares_latin1(std::string_view page);

/// Drops lines that recur among the first or last 15 lines with text of more than 5 % of the
/// documents (at least 7): navigation and footers. Fewer than 8 documents stay as they are.
void strip_boilerplate(std::vector<Document>& documents);

}  // namespace smelt
