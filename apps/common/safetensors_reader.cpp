#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/common/safetensors_format.h"

namespace smelt {

using safetensors::in_quotes;

namespace {

/// Conversions go through a buffer of this size, so that they need no second copy of a tensor.
constexpr int64_t kBlockBytes = 4 << 20;

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24
    const float magnitude = float(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 0x1f ? 0xffu : exponent + 112;  // bias 15 to bias 127
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

/// pread until `size` bytes are there.
void read_fully(int fd, int64_t offset, void* data, int64_t size,
                const std::filesystem::path& path) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = pread(fd, next, size_t(size), offset);
    if (got < 0 && errno == EINTR) continue;
    SMELT_CHECK(IoError, got >= 0, path.string() << ": cannot read: " << std::strerror(errno));
    SMELT_CHECK(IoError, got > 0,
                path.string() << ": the file ends at byte " << offset
                              << "; it was cut after it was opened");
    next += got;
    offset += got;
    size -= got;
  }
}

/// Opens a regular file; returns the descriptor and its size.
std::pair<int, int64_t> open_file(const std::filesystem::path& path) {
  // Without O_NONBLOCK a named pipe in place of the file would block for ever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  SMELT_CHECK(IoError, fd >= 0, path.string() << ": cannot open: " << std::strerror(errno));
  struct stat status = {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    throw IoError(path.string() + ": not a regular file");
  }
  return {fd, status.st_size};
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  const auto [fd, size] = open_file(path_);
  fd_ = fd;
  try {
    SMELT_CHECK(IoError, size >= 8,
                path_.string() << ": " << size << " bytes; a safetensors file has at least 8");
    uint64_t header_bytes = 0;
    static_assert(std::endian::native == std::endian::little, "the format is little-endian");
    read_bytes(0, &header_bytes, 8);
    SMELT_CHECK(IoError, header_bytes <= uint64_t(std::min(safetensors::kMaxHeaderBytes, size - 8)),
                path_.string() << ": header size " << header_bytes << " must be at most "
                               << std::min(safetensors::kMaxHeaderBytes, size - 8) << " (file size "
                               << size << ", limit " << safetensors::kMaxHeaderBytes << ")");
    data_start_ = 8 + int64_t(header_bytes);
    std::string text(size_t(header_bytes), '\0');
    read_bytes(8, text.data(), int64_t(header_bytes));
    safetensors::Header header =
        safetensors::parse_header(text, size - data_start_, path_.string());
    metadata_ = std::move(header.metadata);
    for (auto& [name, info] : header.tensors) {
      names_.push_back(name);
      tensors_.emplace(std::move(name), std::move(info));
    }
  } catch (...) {
    close(fd_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { close(fd_); }

void SafetensorsFile::read_bytes(int64_t offset, void* data, int64_t size) const {
  read_fully(fd_, offset, data, size, path_);
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = tensors_.find(name);
  SMELT_CHECK(
      IoError, found != tensors_.end(),
      path_.string() << ": no tensor " << in_quotes(name) << " among its " << names_.size());
  return found->second;
}

DType SafetensorsFile::readable_dtype(const std::string& name) const {
  const TensorInfo& entry = info(name);
  const auto dtype = safetensors::find_dtype(entry.dtype)->dtype;
  SMELT_CHECK(IoError, dtype.has_value(),
              path_.string() << ": tensor " << in_quotes(name) << " is " << entry.dtype
                             << "; readable are F32, F16, BF16, F64, I32 and I64");
  return *dtype;
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const Tensor tensor = Tensor::empty(info(name).shape, {readable_dtype(name), {}});
  fill(info(name), 0, tensor);
  return tensor;
}

void SafetensorsFile::read_into(const std::string& name, const Tensor& target) const {
  check_target(name, info(name).shape, target);
  fill(info(name), 0, target);
}

void SafetensorsFile::read_into(const std::string& name, const Tensor& target, int64_t begin,
                                int64_t end) const {
  const TensorInfo& entry = info(name);
  SMELT_CHECK(IoError, !entry.shape.empty() && 0 <= begin && begin <= end && end <= entry.shape[0],
              path_.string() << ": tensor " << in_quotes(name) << " has shape "
                             << to_string(entry.shape) << "; it has no rows [" << begin << ", "
                             << end << ")");
  Shape rows = entry.shape;
  rows[0] = end - begin;
  check_target(name, rows, target);
  fill(entry, entry.shape[0] == 0 ? 0 : begin * (numel_of(entry.shape) / entry.shape[0]), target);
}

void SafetensorsFile::check_target(const std::string& name, const Shape& shape,
                                   const Tensor& target) const {
  check_defined("read_into", "target", target);
  const DType dtype = readable_dtype(name);
  SMELT_CHECK(IoError,
              dtype == target.dtype() || (is_floating(dtype) && is_floating(target.dtype())),
              path_.string() << ": tensor " << in_quotes(name) << " is " << info(name).dtype
                             << ", which does not convert to " << target.dtype());
  SMELT_CHECK(IoError, shape == target.shape(),
              path_.string() << ": tensor " << in_quotes(name) << " gives shape "
                             << to_string(shape) << "; must be " << to_string(target.shape()));
}

void SafetensorsFile::fill(const TensorInfo& entry, int64_t element, const Tensor& target) const {
  if (target.numel() == 0) return;
  const safetensors::FileDType& type = *safetensors::find_dtype(entry.dtype);
  const int64_t bytes = target.numel() * type.bits / 8;
  const int64_t offset = data_start_ + entry.begin + element * type.bits / 8;
  const bool half = type.name == "F16";
  if (!half && target.dtype() == *type.dtype && target.device().is_cpu() &&
      target.is_contiguous()) {
    read_bytes(offset, target.raw(), bytes);
    return;
  }
  if (bytes <= kBlockBytes) {
    const Tensor block = Tensor::empty(target.shape(), {*type.dtype, {}});
    if (half) {
      std::vector<uint16_t> halves(size_t(target.numel()));
      read_bytes(offset, halves.data(), bytes);
      std::transform(halves.begin(), halves.end(), block.data<float>(), half_to_float);
    } else {
      read_bytes(offset, block.raw(), bytes);
    }
    target.copy_(block.to(target.device()));
    return;
  }
  // The first dimension above 1 is the outermost in memory order: its halves are consecutive.
  int64_t d = 0;
  while (target.dim(d) == 1) ++d;
  const int64_t middle = target.dim(d) / 2;
  const Tensor first = target.slice(d, 0, middle);
  fill(entry, element, first);
  fill(entry, element + first.numel(), target.slice(d, middle, target.dim(d)));
}

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder,
                                     const std::string& prefix) {
  where_ = folder / (prefix + ".safetensors");
  const std::filesystem::path index = folder / (prefix + ".safetensors.index.json");
  std::error_code error;
  if (std::filesystem::exists(where_, error)) {
    add(where_);
    return;
  }
  SMELT_CHECK(IoError, std::filesystem::exists(index, error),
              folder.string() << ": holds neither " << where_.filename().string() << " nor "
                              << index.filename().string());
  where_ = index;
  open_index(folder, index);
}

void SafetensorsFolder::add(const std::filesystem::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  const SafetensorsFile& file = *files_.back();
  for (const std::string& name : file.names()) {
    const auto [entry, added] = shard_of_.emplace(name, &file);
    SMELT_CHECK(IoError, added,
                path.string() << ": tensor " << in_quotes(name) << " is also in "
                              << entry->second->path().filename().string()
                              << "; each must be in one shard only");
    names_.push_back(name);
  }
}

void SafetensorsFolder::open_index(const std::filesystem::path& folder,
                                   const std::filesystem::path& index) {
  const auto [fd, size] = open_file(index);
  std::string text;
  try {
    SMELT_CHECK(IoError, size <= safetensors::kMaxHeaderBytes,
                index.string() << ": " << size << " bytes; an index has at most "
                               << safetensors::kMaxHeaderBytes);
    text.resize(size_t(size));
    read_fully(fd, 0, text.data(), size, index);
  } catch (...) {
    close(fd);
    throw;
  }
  close(fd);
  const auto weight_map = safetensors::parse_index(text, index.string());
  std::vector<std::string> shards;
  for (const auto& [name, shard] : weight_map) shards.push_back(shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  for (const std::string& shard : shards) add(folder / shard);

  std::unordered_set<std::string> mapped;
  for (const auto& [name, shard] : weight_map) {
    const auto found = shard_of_.find(name);
    SMELT_CHECK(IoError,
                found != shard_of_.end() && found->second->path().filename().string() == shard,
                index.string() << ": tensor " << in_quotes(name) << " is mapped to " << shard
                               << ", which does not hold it");
    mapped.insert(name);
  }
  for (const std::string& name : names_) {
    SMELT_CHECK(IoError, mapped.count(name) > 0,
                file_of(name).path().string()
                    << ": tensor " << in_quotes(name) << " is not in the weight_map of "
                    << index.filename().string() << "; every tensor must be");
  }
}

const SafetensorsFile& SafetensorsFolder::file_of(const std::string& name) const {
  const auto found = shard_of_.find(name);
  SMELT_CHECK(
      IoError, found != shard_of_.end(),
      where_.string() << ": no tensor " << in_quotes(name) << " among its " << names_.size());
  return *found->second;
}

}  // namespace smelt
