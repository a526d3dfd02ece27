#include "apps/common/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <boost/iostreams/categories.hpp>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filtering_streambuf.hpp>
#include <zstd.h>

#include "tensor/error.h"

namespace smelt {
namespace {

namespace io = boost::iostreams;

/// The bytes as they are stored. The first ones can be looked at without a seek, so pipes work.
struct Stored {
  std::istream* in = nullptr;
  std::string head;
  size_t head_taken = 0;
  int64_t consumed = 0;

  void look(size_t count) {
    head.resize(count);
    in->read(head.data(), static_cast<std::streamsize>(count));
    head.resize(static_cast<size_t>(in->gcount()));
  }
  size_t read(char* data, size_t size) {
    size_t count = std::min(size, head.size() - head_taken);
    head.copy(data, count, head_taken);
    head_taken += count;
    if (count < size && *in) {
      in->read(data + count, static_cast<std::streamsize>(size - count));
      count += static_cast<size_t>(in->gcount());
    }
    SMELT_CHECK(IoError, !in->bad(), std::strerror(errno));
    consumed += static_cast<int64_t>(count);
    return count;
  }
};

/// A Boost.Iostreams source over Stored, which outlives it.
struct StoredDevice {
  using char_type = char;
  using category = io::source_tag;
  Stored* stored;
  std::streamsize read(char* data, std::streamsize size) {
    const size_t count = stored->read(data, static_cast<size_t>(size));
    return count == 0 && size > 0 ? -1 : static_cast<std::streamsize>(count);
  }
};

enum class Compression { none, gzip, zstd };

Compression compression_of(const std::string& bytes) {
  const auto at = [&](size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u;
  };
  if (at(0) == 0x1f && at(1) == 0x8b) return Compression::gzip;
  const bool frame = at(0) == 0x28 && at(1) == 0xb5 && at(2) == 0x2f && at(3) == 0xfd;
  const bool skippable = (at(0) & 0xf0) == 0x50 && at(1) == 0x2a && at(2) == 0x4d && at(3) == 0x18;
  return frame || skippable ? Compression::zstd : Compression::none;
}

/// Inflates zstd frames. Not Boost's filter: that one takes a file cut off inside a frame for
/// whole. Frames that need more than the library's usual 128 MiB window are refused by it.
class ZstdReader {
 public:
  explicit ZstdReader(Stored& in) : in_(in), input_(ZSTD_DStreamInSize()) {
    SMELT_CHECK(RunError, stream_, "zstd: out of memory");
  }

  size_t read(std::vector<char>& buffer) {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    while (out.pos < out.size) {
      if (pending_.pos == pending_.size)
        pending_ = {input_.data(), in_.read(input_.data(), input_.size()), 0};
      const bool at_end = pending_.size == 0;
      if (at_end && !inside_frame_) break;
      const size_t before = out.pos;
      const size_t status = ZSTD_decompressStream(stream_.get(), &out, &pending_);
      SMELT_CHECK(IoError, !ZSTD_isError(status), ZSTD_getErrorName(status));
      inside_frame_ = status != 0;
      SMELT_CHECK(IoError, !at_end || !inside_frame_ || out.pos > before,
                  "the file ends inside a zstd frame");
    }
    return out.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  Stored& in_;
  std::unique_ptr<ZSTD_DStream, Free> stream_{ZSTD_createDStream()};
  std::vector<char> input_;
  ZSTD_inBuffer pending_{nullptr, 0, 0};
  bool inside_frame_ = false;
};

}  // namespace

struct ByteSource::Impl {
  explicit Impl(const std::string& path_) : path(path_) {
    if (path == "-") {
      path = "standard input";
      stored.in = &std::cin;
    } else {
      file.open(path, std::ios::binary);
      SMELT_CHECK(IoError, file, path << ": cannot read: " << std::strerror(errno));
      SMELT_CHECK(IoError, !std::filesystem::is_directory(path),
                  path << ": is a folder, not a file");
      stored.in = &file;
    }
    stored.look(4);
    const Compression compression = compression_of(stored.head);
    if (compression == Compression::zstd) {
      zstd = std::make_unique<ZstdReader>(stored);
      return;
    }
    if (compression == Compression::gzip) chain.push(io::gzip_decompressor());
    chain.push(StoredDevice{&stored}, 1 << 16);
  }

  std::string path;
  std::ifstream file;
  Stored stored;
  std::unique_ptr<ZstdReader> zstd;
  io::filtering_streambuf<io::input> chain;
};

ByteSource::ByteSource(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
ByteSource::~ByteSource() = default;

size_t ByteSource::read(std::vector<char>& buffer) {
  try {
    if (impl_->zstd) return impl_->zstd->read(buffer);
    const auto size = static_cast<std::streamsize>(buffer.size());
    return static_cast<size_t>(
        std::max<std::streamsize>(0, impl_->chain.sgetn(buffer.data(), size)));
  } catch (const std::exception& e) {
    throw IoError(impl_->path + ": cannot read: " + e.what());
  }
}

int64_t ByteSource::consumed() const { return impl_->stored.consumed; }

}  // namespace smelt
