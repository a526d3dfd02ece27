// Regular expressions of pre-tokenizers, on PCRE2 with its compiler. A pattern is compiled once and
// shared by threads; each thread matches with a RegexScratch of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace smelt {

struct RegexDeleter {
  void operator()(pcre2_real_code_8* p) const;
  void operator()(pcre2_real_match_data_8* p) const;
  void operator()(pcre2_real_match_context_8* p) const;
  void operator()(pcre2_real_jit_stack_8* p) const;
};

/// What matching needs besides the pattern; serves any number of patterns in turn.
class RegexScratch {
 public:
  RegexScratch();
  /// Sets the limits of one match for texts of up to `bytes`. They grow with the text, because long
  /// runs of blanks take a step per character, and stop patterns that would never end.
  void limit_for(size_t bytes);

 private:
  friend class Regex;
  std::unique_ptr<pcre2_real_match_data_8, RegexDeleter> data_;
  std::unique_ptr<pcre2_real_match_context_8, RegexDeleter> context_;
  std::unique_ptr<pcre2_real_jit_stack_8, RegexDeleter> stack_;
};

class Regex {
 public:
  /// @param pattern  in the notation of tokenizer.json; see regex_translation.h
  /// @param where    file and key, the beginning of messages
  /// @throws ConfigError for a pattern that is malformed, too long, read differently by Oniguruma,
  ///   or able to match the empty text.
  static Regex pattern(std::string_view pattern, const std::string& where);
  /// Matches exactly `text`, not empty.
  static Regex literal(std::string_view text, const std::string& where);

  /// The leftmost match in text[from, end): sets begin and end.
  /// @param text  valid UTF-8, `from` at a character
  /// @throws RunError if a limit is exceeded.
  bool find(std::string_view text, size_t from, RegexScratch& scratch, size_t& begin,
            size_t& end) const;

 private:
  Regex(const std::string& pattern, unsigned options, const std::string& where);

  std::unique_ptr<pcre2_real_code_8, RegexDeleter> code_;
  bool compiled_ = false;  // to machine code
};

}  // namespace smelt
