#include "apps/prepare/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "tensor/error.h"

namespace smelt {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kMaxHeaderData = int64_t{1} << 20;  // of a long name or a pax header
constexpr int64_t kMaxMember = int64_t{1} << 40;

struct Field {
  size_t offset, length;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 5}, kPrefix{345, 155};
constexpr size_t kType = 156;

std::string_view field_text(const std::array<char, 512>& header, Field field) {
  const std::string_view all(header.data() + field.offset, field.length);
  return all.substr(0, all.find('\0'));
}

// Octal digits, or base 256 with the top bit of the first byte set; -1 if neither.
int64_t field_number(const std::array<char, 512>& header, Field field) {
  const char* at = header.data() + field.offset;
  if (static_cast<unsigned char>(*at) == 0x80) {
    uint64_t value = 0;
    for (size_t i = 1; i < field.length; ++i) {
      if (value >> 54 != 0) return -1;
      value = value << 8 | static_cast<unsigned char>(at[i]);
    }
    return static_cast<int64_t>(value);
  }
  int64_t value = 0;
  size_t i = 0;
  while (i < field.length && at[i] == ' ') ++i;
  for (; i < field.length && at[i] >= '0' && at[i] <= '7'; ++i) value = value * 8 + (at[i] - '0');
  return i == field.length || at[i] == ' ' || at[i] == '\0' ? value : -1;
}

int64_t header_sum(const std::array<char, 512>& header) {
  int64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool checksum = i >= kChecksum.offset && i < kChecksum.offset + kChecksum.length;
    sum += checksum ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return sum;
}

// Calls use(key, value) for the records "LENGTH KEY=VALUE\n" of a pax header; false if malformed.
template <typename Use>
bool parse_pax(std::string_view text, Use use) {
  while (!text.empty()) {
    size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<size_t>(end - text.data());
    if (error != std::errc() || length > text.size() || length < digits + 3) return false;
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    use(record.substr(0, equals), record.substr(equals + 1));
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

void TarReader::read_exactly(char* data, size_t size) {
  while (size > 0) {
    const size_t count = source_(data, size);
    SMELT_CHECK(IoError, count > 0, label_ << ": the archive ends in the middle of a member");
    data += count;
    size -= count;
  }
}

void TarReader::skip(int64_t size) {
  std::array<char, 65536> ignored;
  while (size > 0) {
    const int64_t step = std::min<int64_t>(size, ignored.size());
    read_exactly(ignored.data(), static_cast<size_t>(step));
    size -= step;
  }
}

// Grows with what really arrives, so that a wrong size cannot ask for memory.
std::string TarReader::read_block(int64_t size) {
  constexpr int64_t kStep = int64_t{1} << 20;
  std::string data;
  while (size > 0) {
    const int64_t step = std::min(size, kStep);
    const size_t old = data.size();
    data.resize(old + static_cast<size_t>(step));
    read_exactly(data.data() + old, static_cast<size_t>(step));
    size -= step;
  }
  return data;
}

bool TarReader::read_header(Header& header) {
  size_t have = 0;
  while (have < header.size()) {
    const size_t count = source_(header.data() + have, header.size() - have);
    if (count == 0) break;
    have += count;
  }
  if (have == 0) return false;
  SMELT_CHECK(IoError, have == header.size(), label_ << ": the archive ends inside a header");
  return std::any_of(header.begin(), header.end(), [](char c) { return c != 0; });
}

bool TarReader::next(TarMember& member) {
  skip(unread_ + padding_);
  unread_ = padding_ = 0;
  std::string long_name;
  int64_t long_size = -1;
  Header header;
  while (read_header(header)) {
    SMELT_CHECK(IoError, field_number(header, kChecksum) == header_sum(header),
                label_ << ": a header has a wrong checksum");
    int64_t size = field_number(header, kSize);
    const char type = header[kType];
    if (long_size >= 0 && type != 'L' && type != 'K' && type != 'x' && type != 'g') {
      size = long_size;
    }
    SMELT_CHECK(IoError, size >= 0 && size <= kMaxMember,
                label_ << ": a member has an impossible size");
    const int64_t padding = (kBlock - size % kBlock) % kBlock;
    if (type == 'L' || type == 'K' || type == 'x' || type == 'g') {
      SMELT_CHECK(IoError, size <= kMaxHeaderData,
                  label_ << ": an extended header of " << size << " bytes; at most "
                         << kMaxHeaderData << " are allowed");
      std::string data = read_block(size);
      skip(padding);
      if (type == 'L') long_name = data.substr(0, data.find('\0'));
      if (type == 'x') {
        const bool good = parse_pax(data, [&](std::string_view key, std::string_view value) {
          if (key == "path") long_name = value;
          if (key == "size") {
            std::from_chars(value.data(), value.data() + value.size(), long_size);
          }
        });
        SMELT_CHECK(IoError, good, label_ << ": a pax header is malformed");
      }
      continue;
    }
    member.name = std::move(long_name);
    if (member.name.empty()) {
      const std::string_view prefix = field_text(header, kMagic) == "ustar" && header[263] == '0'
                                          ? field_text(header, kPrefix)
                                          : std::string_view();
      member.name = prefix.empty() ? "" : std::string(prefix) + '/';
      member.name += field_text(header, kName);
    }
    member.regular = type == '0' || type == '\0' || type == '7';
    member.size = size;
    // Links and devices may name a size but store nothing.
    const bool stored = !(type >= '1' && type <= '6');
    unread_ = stored ? size : 0;
    padding_ = stored ? padding : 0;
    return true;
  }
  return false;
}

std::string TarReader::contents() {
  std::string data = read_block(unread_);
  unread_ = 0;
  return data;
}

}  // namespace smelt
