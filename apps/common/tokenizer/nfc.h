// Unicode normalization form C.
#pragma once

#include <string>
#include <string_view>

namespace smelt {

/// `text`, valid UTF-8, in form NFC: `text` itself where nothing changes, else a view of `storage`.
/// Only the stretches that hold a character which can change go through utf8proc: plain text costs
/// a look at its bytes.
std::string_view to_nfc(std::string_view text, std::string& storage);

}  // namespace smelt
