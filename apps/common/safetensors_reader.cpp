#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/common/safetensors_convert.h"

namespace smelt {

using safetensors::in_quotes;

namespace {

/// Reads and conversions go by blocks of this size: a buffer for each thread, never a second copy
/// of a tensor, and small enough that a converted block is still in the cache.
constexpr int64_t kBlockBytes = 1 << 20;

/// Whether blocks of a file can go straight to where they belong.
bool is_plain(const Tensor& target) { return target.device().is_cpu() && target.is_contiguous(); }

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

void SafetensorsFile::check_dtypes(const std::string& name, const Tensor& target) const {
  const DType dtype = readable_dtype(name);
  SMELT_CHECK(IoError,
              dtype == target.dtype() || (is_floating(dtype) && is_floating(target.dtype())),
              path_.string() << ": tensor " << in_quotes(name) << " is " << info(name).dtype
                             << ", which does not convert to " << target.dtype());
}

void SafetensorsFile::check_target(const std::string& name, const Shape& shape,
                                   const Tensor& target) const {
  check_defined("read_into", "target", target);
  check_dtypes(name, target);
  SMELT_CHECK(IoError, shape == target.shape(),
              path_.string() << ": tensor " << in_quotes(name) << " gives shape "
                             << to_string(shape) << "; must be " << to_string(target.shape()));
}

void SafetensorsFile::read_elements(const std::string& name, const Tensor& target,
                                    int64_t begin) const {
  check_elements(name, target, begin);
  fill(info(name), begin, target);
}

void SafetensorsFile::check_elements(const std::string& name, const Tensor& target,
                                     int64_t begin) const {
  check_defined("read_elements", "target", target);
  check_dtypes(name, target);
  const int64_t all = numel_of(info(name).shape);
  SMELT_CHECK(IoError, 0 <= begin && begin <= all && target.numel() <= all - begin,
              path_.string() << ": tensor " << in_quotes(name) << " has " << all
                             << " elements; it has no " << target.numel() << " from " << begin
                             << " on");
}

void SafetensorsFile::read_block(const TensorInfo& entry, int64_t element, const Tensor& target,
                                 int64_t at, int64_t count) const {
  const safetensors::FileDType& type = *safetensors::find_dtype(entry.dtype);
  const int64_t offset = data_start_ + entry.begin + (element + at) * type.bits / 8;
  const int64_t bytes = count * type.bits / 8;
  char* out = static_cast<char*>(target.raw()) + at * size_of(target.dtype());
  if (type.name != "F16" && target.dtype() == *type.dtype) {
    read_bytes(offset, out, bytes);
    return;
  }
  thread_local std::vector<char> buffer;
  buffer.resize(size_t(bytes));
  read_bytes(offset, buffer.data(), bytes);
  safetensors::convert(type, buffer.data(), target.dtype(), out, count);
}

void SafetensorsFile::fill(const TensorInfo& entry, int64_t element, const Tensor& target) const {
  if (target.numel() == 0) return;
  const int64_t block = kBlockBytes * 8 / safetensors::find_dtype(entry.dtype)->bits;
  if (is_plain(target)) {
    for (int64_t at = 0; at < target.numel(); at += block)
      read_block(entry, element, target, at, std::min(block, target.numel() - at));
    return;
  }
  if (target.numel() <= block) {
    const Tensor packed = Tensor::empty(target.shape(), {target.dtype(), {}});
    read_block(entry, element, packed, 0, packed.numel());
    target.copy_(packed.to(target.device()));
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

void SafetensorsFile::will_read(const TensorInfo& entry, int64_t element, int64_t count) const {
  // A hint alone, so that the disk works ahead of the threads; failing is no fault. Never for the
  // whole file: a rank may want a few experts of it.
  const int64_t bits = safetensors::find_dtype(entry.dtype)->bits;
  posix_fadvise(fd_, data_start_ + entry.begin + element * bits / 8, count * bits / 8,
                POSIX_FADV_WILLNEED);
}

void read_all(std::vector<TensorRead> reads) {
  struct Block {
    const TensorRead* read;
    int64_t at, count;
  };
  std::stable_sort(reads.begin(), reads.end(), [](const TensorRead& a, const TensorRead& b) {
    if (a.file != b.file) return a.file->path() < b.file->path();
    return std::pair(a.file->info(a.name).begin, a.begin) <
           std::pair(b.file->info(b.name).begin, b.begin);
  });
  for (size_t first = 0; first < reads.size();) {
    const SafetensorsFile& file = *reads[first].file;
    std::vector<Block> blocks;
    size_t next = first;
    for (; next < reads.size() && reads[next].file == &file; ++next) {
      const TensorRead& read = reads[next];
      file.check_elements(read.name, read.target, read.begin);
      const int64_t count = read.target.numel();
      if (count > 0) file.will_read(file.info(read.name), read.begin, count);
      const int64_t block =
          is_plain(read.target)
              ? kBlockBytes * 8 / safetensors::find_dtype(file.info(read.name).dtype)->bits
              : std::max<int64_t>(count, 1);
      for (int64_t at = 0; at < count; at += block)
        blocks.push_back({&read, at, std::min(block, count - at)});
    }
    first = next;
    std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 4)
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto& [read, at, count] = blocks[i];
      try {
        if (is_plain(read->target)) {
          file.read_block(file.info(read->name), read->begin, read->target, at, count);
        } else {
          file.fill(file.info(read->name), read->begin, read->target);
        }
      } catch (...) {
#pragma omp critical(smelt_read_all)
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }
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
