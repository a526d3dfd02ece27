#include "apps/common/tokenizer/nfc.h"

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include <utf8proc.h>

#include "apps/common/tokenizer/utf8.h"
#include "tensor/error.h"

namespace smelt {
namespace {

constexpr char32_t kCodes = 0x110000;

std::string normalized(std::string_view text) {
  utf8proc_uint8_t* raw = nullptr;
  // With its length given, a NUL is a character like any other.
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &raw,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(raw, std::free);
  SMELT_CHECK(RunError, bytes >= 0, "NFC: " << utf8proc_errmsg(bytes));
  return {reinterpret_cast<const char*>(raw), static_cast<size_t>(bytes)};
}

// Characters that NFC may change, alone or after another one: those of a combining class, those
// that compose with what stands before them, and those that are not their own normal form. The
// standard's quick check (NFC_QC), from what utf8proc offers.
const std::vector<bool>& may_change() {
  static const std::vector<bool> table = [] {
    std::vector<bool> result(kCodes);
    std::string text;
    for (char32_t code = 0x80; code < kCodes; ++code) {
      if (code >= 0xD800 && code <= 0xDFFF) continue;
      const utf8proc_property_t* p = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
      const bool hangul_part = code >= 0x1100 && code <= 0x11FF;  // composed by rule, not by table
      const bool second = p->comb_index != UINT16_MAX && p->comb_index >= 0x8000;
      bool changes = hangul_part || second || p->combining_class != 0;
      if (!changes && p->decomp_seqindex != UINT16_MAX && p->decomp_type == 0) {
        text.clear();
        append_character(text, code);
        changes = normalized(text) != text;
      }
      result[code] = changes;
    }
    return result;
  }();
  return table;
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& storage) {
  // Everything below U+0300 (first byte below 0xCC) is its own normal form, and nothing before or
  // after such a character reaches across it except marks that follow. So the text may be cut in
  // front of each of them.
  const auto high = [&](size_t i) { return static_cast<unsigned char>(text[i]) >= 0xCC; };
  const auto low_start = [&](size_t i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    return byte < 0xCC && (byte & 0xC0) != 0x80;
  };
  bool changed = false;
  size_t copied = 0, low = 0;  // low: the last cut
  for (size_t i = 0; i < text.size();) {
    if (!high(i)) {
      if (low_start(i)) low = i;
      ++i;
      continue;
    }
    // A stretch of characters from U+0300 on, with the low one in front of it.
    size_t end = i;
    bool suspicious = false;
    while (end < text.size() && !low_start(end)) {
      const Character c = first_character(text.substr(end, 4));
      suspicious = suspicious || may_change()[c.code];
      end += c.bytes;
    }
    if (suspicious) {
      const std::string better = normalized(text.substr(low, end - low));
      if (better != text.substr(low, end - low)) {
        if (!changed) storage.clear();
        changed = true;
        storage += text.substr(copied, low - copied);
        storage += better;
        copied = end;
      }
    }
    i = low = end;
  }
  if (!changed) return text;
  storage += text.substr(copied);
  return storage;
}

}  // namespace smelt
