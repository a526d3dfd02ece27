// Patterns of tokenizer.json are written for Oniguruma; PCRE2 runs them here. Where the two read a
// construct differently it is rewritten, or refused: never guessed.
//
//   \s              [\x09-\x0d\x20\x85\p{Z}]   (PCRE2's own also holds U+180E)
//   \d              \p{Nd}
//   \p{Han}         \p{sc:Han}                 (PCRE2's own looks at script extensions)
//   \uHHHH, \v      \x{HHHH}, \x0b
//   ^ $ \b \w \h \A \z \K \R, (?i) without a colon, lookbehind, names, backreferences, (*VERBS),
//   {n,m}+ {n,m}? {,m}, [ and && inside classes, \S inside a class, and characters with foldings of
//   several characters under (?i:): refused
#pragma once

#include <string>
#include <string_view>

namespace smelt {

/// @param where  file and key, the beginning of messages
/// @throws ConfigError naming the construct and its place in the pattern.
std::string translate_pattern(std::string_view pattern, const std::string& where);

}  // namespace smelt
