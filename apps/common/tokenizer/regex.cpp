#include "apps/common/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <cstdint>
#include <new>

#include <pcre2.h>

#include "apps/common/tokenizer/regex_translation.h"
#include "tensor/error.h"

namespace smelt {
namespace {

constexpr size_t kLongestPattern = 16384;
constexpr size_t kJitStackBytes = size_t{64} << 20;  // grows on demand
constexpr uint32_t kHeapKibibytes = 256 * 1024;      // without the compiler

std::string message_of(int code) {
  PCRE2_UCHAR text[160] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

void RegexDeleter::operator()(pcre2_real_code_8* p) const { pcre2_code_free(p); }
void RegexDeleter::operator()(pcre2_real_match_data_8* p) const { pcre2_match_data_free(p); }
void RegexDeleter::operator()(pcre2_real_match_context_8* p) const { pcre2_match_context_free(p); }
void RegexDeleter::operator()(pcre2_real_jit_stack_8* p) const { pcre2_jit_stack_free(p); }

RegexScratch::RegexScratch()
    // One pair of offsets: groups are not looked at.
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)) {
  if (!data_ || !context_) throw std::bad_alloc();
  // Without a stack of ours (no compiler), PCRE2 takes 32 KiB of the machine's.
  if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  pcre2_set_heap_limit(context_.get(), kHeapKibibytes);
  limit_for(0);
}

void RegexScratch::limit_for(size_t bytes) {
  const uint64_t limit = 1'000'000 + 64 * static_cast<uint64_t>(bytes);
  pcre2_set_match_limit(context_.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
}

Regex Regex::pattern(std::string_view pattern, const std::string& where) {
  SMELT_CHECK(
      ConfigError, pattern.size() <= kLongestPattern,
      where << ": the pattern has " << pattern.size() << " bytes, allowed are " << kLongestPattern);
  return Regex(translate_pattern(pattern, where), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
               where);
}

Regex Regex::literal(std::string_view text, const std::string& where) {
  SMELT_CHECK(
      ConfigError, text.size() <= kLongestPattern,
      where << ": the pattern has " << text.size() << " bytes, allowed are " << kLongestPattern);
  return Regex(std::string(text), PCRE2_UTF | PCRE2_LITERAL, where);
}

Regex::Regex(const std::string& pattern, unsigned options, const std::string& where) {
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                            &error, &at, context.get()));
  SMELT_CHECK(ConfigError, code_,
              where << ": '" << pattern << "' is not a regular expression: " << message_of(error)
                    << " at byte " << at);
  uint32_t empty = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  SMELT_CHECK(ConfigError, empty == 0 && !pattern.empty(),
              where << ": '" << pattern << "' can match the empty text, which splits nothing");
  compiled_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

bool Regex::find(std::string_view text, size_t from, RegexScratch& scratch, size_t& begin,
                 size_t& end) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int result = compiled_
                         ? pcre2_jit_match(code_.get(), subject, text.size(), from, 0,
                                           scratch.data_.get(), scratch.context_.get())
                         : pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                       scratch.data_.get(), scratch.context_.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  SMELT_CHECK(RunError, result >= 0,
              "the tokenizer's pattern fails on a text of " << text.size() << " bytes at byte "
                                                            << from << ": " << message_of(result));
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(scratch.data_.get());
  begin = offsets[0];
  end = offsets[1];
  return true;
}

}  // namespace smelt
