// Reads a tar archive as a stream: ustar, GNU long names ('L') and pax headers ('x': path, size).
// Only regular files have contents here; links are listed like everything else and never followed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace smelt {

struct TarMember {
  std::string name;
  bool regular = false;
  int64_t size = 0;
};

class TarReader {
 public:
  /// Reads up to `size` bytes into `data` and returns how many; 0 at the end.
  using Source = std::function<size_t(char* data, size_t size)>;

  /// `label` names the archive in errors.
  TarReader(Source source, std::string label)
      : source_(std::move(source)), label_(std::move(label)) {}

  /// Goes to the next member; false at the end of the archive.
  /// @throws IoError for a damaged header or a truncated archive.
  bool next(TarMember& member);
  /// The current member's bytes; call at most once per member. @throws IoError if truncated.
  std::string contents();

 private:
  using Header = std::array<char, 512>;
  bool read_header(Header& header);
  void read_exactly(char* data, size_t size);
  std::string read_block(int64_t size);
  void skip(int64_t size);

  Source source_;
  std::string label_;
  int64_t unread_ = 0;   // bytes of the current member not yet taken
  int64_t padding_ = 0;  // zero bytes after them
};

}  // namespace smelt
