// SHA-256 (FIPS 180-4) of short texts: the identity of a configuration in endpoints.jsonl.
// Boost 1.75 to 1.81 offer SHA-1 only.
#pragma once

#include <string>
#include <string_view>

namespace smelt {

/// The hash as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view text);

}  // namespace smelt
