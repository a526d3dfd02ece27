#include "apps/common/tokenizer/regex_translation.h"

#include <array>
#include <cctype>
#include <cstdint>
#include <set>
#include <vector>

#include "tensor/error.h"

namespace smelt {
namespace {

constexpr char kSpaces[] = R"(\x09-\x0d\x20\x85\p{Z})";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        plain_character(c);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(where_ + ": '" + std::string(in_) + "': " + what + " at byte " +
                      std::to_string(at_) +
                      " is not supported: regular expression engines differ in it");
  }

  char peek(size_t ahead = 1) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void copy(size_t bytes) {
    out_ += in_.substr(at_, bytes);
    at_ += bytes;
  }
  void put(std::string_view text, size_t skipped) {
    out_ += text;
    at_ += skipped;
  }
  bool caseless() const { return !groups_.empty() && groups_.back(); }

  void class_character(char c) {
    if (c == '[') refuse("'[' inside a class");
    if (c == '&' && peek() == '&') refuse("'&&' inside a class");
    if (caseless() && !is_ascii(c)) refuse("a character outside ASCII under (?i:)");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void plain_character(char c) {
    if (c == '^' || c == '$') refuse(std::string("'") + c + "'");
    if (c == '[') return open_class();
    if (c == '(') return open_group();
    if (c == '{') return repetition();
    if (c == ')' && !groups_.empty()) groups_.pop_back();
    if (caseless()) check_folding(c);
    copy(1);
  }

  void open_class() {
    in_class_ = true;
    previous_ = '\0';
    const size_t length = peek() == '^' ? 2 : 1;
    if (peek(length) == ']') refuse("']' as the first character of a class");
    copy(length);
  }

  void open_group() {
    bool folds = caseless();
    size_t length = 1;
    if (peek() == '*') refuse("'(*'");
    if (peek() == '?') {
      const char kind = peek(2);
      length = 3;
      if (kind == 'i' && peek(3) == ':') {
        folds = true;
        length = 4;
      } else if (kind != ':' && kind != '=' && kind != '!' && kind != '>') {
        refuse("'(?" + std::string(1, kind) + "'");
      }
    }
    groups_.push_back(folds);
    previous_ = '\0';
    copy(length);
  }

  // {n}, {n,} or {n,m}
  void repetition() {
    size_t end = 1;
    while (is_digit(peek(end))) ++end;
    bool good = end > 1;
    if (peek(end) == ',') {
      ++end;
      while (is_digit(peek(end))) ++end;
    }
    good = good && peek(end) == '}';
    if (!good) refuse("'{' that is not {n}, {n,} or {n,m}");
    ++end;
    if (peek(end) == '+' || peek(end) == '?') refuse("'+' or '?' after {n,m}");
    previous_ = '\0';
    copy(end);
  }

  // Oniguruma lets "ss" match U+00DF, "fi" U+FB01 and so on when it ignores case.
  void check_folding(char c) {
    if (!is_ascii(c)) refuse("a character outside ASCII under (?i:)");
    const char lower = is_letter(c) ? static_cast<char>(c | 0x20) : '\0';
    static const std::set<std::string> folded = {"ff", "fi", "fl", "ss", "st"};
    if (lower != '\0' && folded.count({previous_, lower}) > 0)
      refuse("'" + std::string{previous_, lower} + "' under (?i:)");
    previous_ = lower;
  }

  void escape() {
    previous_ = '\0';
    const char c = peek();
    switch (c) {
      case 's':
        return put(in_class_ ? kSpaces : "[" + std::string(kSpaces) + "]", 2);
      case 'S':
        if (in_class_) refuse("'\\S' inside a class");
        return put("[^" + std::string(kSpaces) + "]", 2);
      case 'd':
        return put("\\p{Nd}", 2);
      case 'D':
        return put("\\P{Nd}", 2);
      case 'p':
      case 'P':
        return property(c);
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return copy(2);
      case 'v':
        return put("\\x0b", 2);
      case 'x':
        return hexadecimal();
      case 'u':
        return unicode();
      default:
        break;
    }
    if (at_ + 1 == in_.size()) refuse("'\\' at the end");
    if (is_letter(c) || is_digit(c) || !is_ascii(c) || c == '\0')
      refuse("'\\" + std::string(1, c) + "'");
    copy(2);
  }

  void code_point(const std::string& digits, size_t skipped) {
    uint64_t code = 0x110000;
    if (digits.size() <= 6) code = std::stoull("0" + digits, nullptr, 16);
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) refuse("this code point");
    if (caseless() && code >= 0x80) refuse("a character outside ASCII under (?i:)");
    put("\\x{" + digits + "}", skipped);
  }

  void hexadecimal() {
    size_t end = 2;
    if (peek(2) == '{') {
      for (end = 3; is_hex(peek(end));) ++end;
      if (end == 3 || peek(end) != '}') refuse("'\\x{' without hexadecimal digits and '}'");
      return code_point(std::string(in_.substr(at_ + 3, end - 3)), end + 1);
    }
    while (end < 4 && is_hex(peek(end))) ++end;
    // Two digits are a byte for Oniguruma, a code point for PCRE2.
    if (end != 4 || peek(2) > '7') refuse("'\\x' without two digits below 80");
    code_point(std::string(in_.substr(at_ + 2, 2)), 4);
  }

  void unicode() {
    for (size_t i = 2; i < 6; ++i)
      if (!is_hex(peek(i))) refuse("'\\u' without four hexadecimal digits");
    code_point(std::string(in_.substr(at_ + 2, 4)), 6);
  }

  void property(char kind) {
    static const std::set<std::string> categories = {
        "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
        "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
        "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cs", "Cn"};
    size_t begin = 3;
    if (peek(2) != '{') refuse("'\\p' without '{'");
    const bool negated = peek(3) == '^';
    if (negated) ++begin;
    size_t end = begin;
    while (is_letter(peek(end)) || peek(end) == '_') ++end;
    const std::string name(in_.substr(at_ + begin, end - begin));
    if (name.empty() || peek(end) != '}') refuse("a property that is not a name in {}");
    if (caseless() && (name == "Lu" || name == "Ll" || name == "Lt"))
      refuse("'\\p{" + name + "}' under (?i:)");
    const std::string value = categories.count(name) > 0 ? name : "sc:" + name;
    put(std::string("\\") + kind + (negated ? "{^" : "{") + value + "}", end + 1);
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::vector<bool> groups_;  // whether the group ignores case
  char previous_ = '\0';      // the letter just read under (?i:)
};

}  // namespace

std::string translate_pattern(std::string_view pattern, const std::string& where) {
  return Translation(pattern, where).run();
}

}  // namespace smelt
