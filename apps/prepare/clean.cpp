#include "apps/prepare/clean.h"

#include <algorithm>
#include <set>

#include <boost/uuid/name_generator_sha1.hpp>

#include "apps/prepare/text_bytes.h"
#include "tensor/rng.h"

namespace smelt {
namespace {

constexpr size_t kShortest = 200;        // bytes of a document
constexpr double kLongestLine = 1000;    // bytes of a mean line
constexpr double kFewestLetters = 0.55;  // share of ASCII letters, blanks and underscores

bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }

// Length of the terminal escape ESC [ digits letter at `at`, 0 if there is none.
size_t escape_bytes(std::string_view text, size_t at) {
  if (at + 1 >= text.size() || text[at + 1] != '[') return 0;
  size_t end = at + 2;
  while (end < text.size() && ((text[end] >= '0' && text[end] <= '9') || text[end] == ';')) ++end;
  return end < text.size() && is_letter(text[end]) ? end + 1 - at : 0;
}

bool passes(std::string_view text, const CleanRules& rules) {
  if (text.size() < kShortest) return false;
  const auto bytes = static_cast<double>(text.size());
  const auto lines = static_cast<double>(std::count(text.begin(), text.end(), '\n') + 1);
  if (rules.limit_line_length && bytes / lines > kLongestLine) return false;
  const auto letters = std::count_if(text.begin(), text.end(), [](char c) {
    return is_letter(c) || c == ' ' || c == '\t' || c == '\n' || c == '_';
  });
  return static_cast<double>(letters) >= kFewestLetters * bytes;
}

}  // namespace

Split split_of(std::string_view id) {
  uint64_t hash = fnv1a(id);
  hash ^= hash >> 32;
  const uint64_t bucket = hash % 1000;
  return bucket < 25 ? Split::valid : bucket < 50 ? Split::test : Split::train;
}

boost::uuids::uuid content_hash(std::string_view bytes) {
  const boost::uuids::name_generator_sha1 sha1{boost::uuids::ns::oid()};
  return sha1(bytes.data(), bytes.size());
}

std::string normalise(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 1);
  size_t newlines = 0;
  const auto put = [&](char c) {
    out.push_back(c);
    newlines = 0;
  };
  const auto end_line = [&] {
    const size_t kept = out.find_last_not_of(" \t") + 1;  // npos + 1 is 0
    if (kept != out.size()) {
      out.resize(kept);
      newlines = 0;
      while (newlines < 3 && newlines < kept && out[kept - 1 - newlines] == '\n') ++newlines;
    }
    if (newlines < 3) {
      out.push_back('\n');
      ++newlines;
    }
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      end_line();
    } else if (c == '\r') {
      end_line();
      if (at + 1 < text.size() && text[at + 1] == '\n') ++at;
    } else if (c == '\x1b' && escape_bytes(text, at) > 0) {
      at += escape_bytes(text, at) - 1;
    } else if ((byte < 0x20 && c != '\t') || c == '\x7f') {
      // a control character: dropped
    } else if (text.substr(at, 2) == "\u00a0") {
      put(' ');
      ++at;
    } else if (text.substr(at, 3) == "\ufeff") {
      at += 2;
    } else {
      put(c);
    }
  }
  return std::string(strip_newlines(out)) + '\n';
}

std::vector<std::string_view> cut_pieces(std::string_view text, size_t limit) {
  std::vector<std::string_view> pieces;
  while (text.size() > limit) {
    size_t end = text.substr(0, limit).rfind("\n\n");
    if (end != std::string_view::npos && end >= limit / 2) {
      end += 2;
    } else {
      end = text.substr(0, limit).rfind('\n');
      if (end != std::string_view::npos && end >= 1) {
        end += 1;
      } else {
        end = limit;
        while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
      }
    }
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (!text.empty() || pieces.empty()) pieces.push_back(text);
  return pieces;
}

CleanResult clean(std::vector<Document> documents, const CleanRules& rules) {
  constexpr size_t kBinaryProbe = 4096;  // characters searched for a NUL
  CleanResult result;
  std::set<boost::uuids::uuid> seen;
  for (Document& document : documents) {
    const size_t nul = document.text.find('\0');
    if (nul != std::string::npos && nul < prefix_bytes(document.text, kBinaryProbe)) continue;
    const std::string text = normalise(document.text);
    document.text = {};  // the package's raw text goes as its pieces come
    if (!passes(text, rules)) continue;
    const auto hash = content_hash(text);
    if (!seen.insert(hash).second) continue;
    ++result.documents;
    result.bytes += static_cast<int64_t>(text.size());
    if (text.size() <= rules.piece_limit) {
      result.pieces.push_back({std::move(document.path), text, hash});
      continue;
    }
    int number = 0;
    for (const std::string_view piece : cut_pieces(text, rules.piece_limit)) {
      std::string digits = std::to_string(number++);
      if (digits.size() < 4) digits.insert(0, 4 - digits.size(), '0');
      result.pieces.push_back(
          {document.path + '#' + digits, std::string(piece), content_hash(piece)});
    }
  }
  return result;
}

}  // namespace smelt
