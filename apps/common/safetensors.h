// safetensors files, single and sharded, in the layout that Hugging Face tools read and write:
// u64 header size, JSON header padded with spaces to 8 bytes, then the packed tensors.
//
// Files come from strangers. The reader checks the whole header against the file's size before it
// allocates anything a header number asks for: every byte belongs to exactly one tensor, no key
// occurs twice, products do not overflow. Values are not checked; NaN and Inf may occur.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/common/output_file.h"
#include "tensor/tensor.h"

namespace smelt {

/// Where a tensor lies in its file.
struct TensorInfo {
  std::string dtype;  // name in the file: "F32", "BF16", "F8_E4M3", ...
  Shape shape;
  int64_t begin = 0;  // bytes [begin, end) of the data section
  int64_t end = 0;
};

/// The strings of "__metadata__".
using SafetensorsMetadata = std::map<std::string, std::string>;

struct TensorRead;

/// One safetensors file, open for reading. Tensor bytes are read only when asked for, so a file
/// larger than memory opens at once. All members may be called from several threads.
class SafetensorsFile {
 public:
  /// Opens and checks a file. Throws IoError naming the file, the tensor, the value and what is
  /// allowed.
  explicit SafetensorsFile(std::filesystem::path path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Names in the order of the bytes.
  const std::vector<std::string>& names() const { return names_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return tensors_.count(name) > 0; }
  /// Throws IoError when there is no such tensor.
  const TensorInfo& info(const std::string& name) const;

  /// The whole tensor on the CPU: F32, BF16, F64, I32 and I64 as they are, F16 as f32. Throws
  /// IoError for other dtypes.
  Tensor read(const std::string& name) const;
  /// Fills `target` (any strides, any device) with the tensor, of which it must have the shape.
  /// Floating dtypes are converted to the target's; integers need the same dtype.
  void read_into(const std::string& name, const Tensor& target) const;
  /// Fills `target` with the target.numel() elements from `begin` on, in row-major order, whatever
  /// the shape in the file.
  void read_elements(const std::string& name, const Tensor& target, int64_t begin) const;
  /// Fills `target` with rows [begin, end) along dimension 0; only their bytes are read.
  void read_into(const std::string& name, const Tensor& target, int64_t begin, int64_t end) const;

 private:
  void read_bytes(int64_t offset, void* data, int64_t size) const;
  DType readable_dtype(const std::string& name) const;
  void check_dtypes(const std::string& name, const Tensor& target) const;
  void check_target(const std::string& name, const Shape& shape, const Tensor& target) const;
  void check_elements(const std::string& name, const Tensor& target, int64_t begin) const;
  /// Tells the system that these elements of a tensor will be read.
  void will_read(const TensorInfo& entry, int64_t element, int64_t count) const;
  friend void read_all(std::vector<TensorRead> reads);
  /// Elements [at, at + count) of a contiguous target, which begins at `element` of the tensor.
  void read_block(const TensorInfo& entry, int64_t element, const Tensor& target, int64_t at,
                  int64_t count) const;
  void fill(const TensorInfo& entry, int64_t element, const Tensor& target) const;

  std::filesystem::path path_;
  int fd_ = -1;
  int64_t data_start_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, TensorInfo> tensors_;
  SafetensorsMetadata metadata_;
};

/// One of many reads: as file->read_elements(name, target, begin).
struct TensorRead {
  const SafetensorsFile* file;
  std::string name;
  Tensor target;
  int64_t begin = 0;
};
/// Does all of them, file after file in the order of the bytes, by all threads at once, straight
/// into the targets. No two targets may overlap. Throws IoError as read_elements does.
void read_all(std::vector<TensorRead> reads);

/// The tensors of PREFIX.safetensors, or else of all shards that PREFIX.safetensors.index.json
/// in the same folder names.
class SafetensorsFolder {
 public:
  /// Opens every shard and checks the index: plain file names, each tensor in exactly the shard
  /// that the index gives, none unmapped. Throws IoError.
  explicit SafetensorsFolder(const std::filesystem::path& folder,
                             const std::string& prefix = "model");

  /// Names, shard after shard.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }
  bool contains(const std::string& name) const { return shard_of_.count(name) > 0; }
  /// The file that holds a tensor; throws IoError when there is none.
  const SafetensorsFile& file_of(const std::string& name) const;

  // As in SafetensorsFile.
  const TensorInfo& info(const std::string& name) const { return file_of(name).info(name); }
  Tensor read(const std::string& name) const { return file_of(name).read(name); }
  void read_into(const std::string& name, const Tensor& target) const {
    file_of(name).read_into(name, target);
  }
  void read_into(const std::string& name, const Tensor& target, int64_t begin, int64_t end) const {
    file_of(name).read_into(name, target, begin, end);
  }

 private:
  void add(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::filesystem::path where_;  // named in errors: the single file or the index
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, const SafetensorsFile*> shard_of_;
};

/// A tensor to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  bool half = false;  // stored as F16, which nothing but files has here; dtype is f32
  int64_t element_bytes() const { return half ? 2 : size_of(dtype); }
  int64_t bytes() const { return numel_of(shape) * element_bytes(); }
};

/// What save_pretrained of transformers writes; its 4.x versions refuse other metadata without it.
inline const SafetensorsMetadata kDefaultMetadata = {{"format", "pt"}};

/// Writes one file, tensor after tensor, so that only one of them need be in memory. All are
/// declared first, since the header comes first.
class SafetensorsWriter {
 public:
  /// Writes the header to a temporary file beside `path`. Throws ConfigError for names that occur
  /// twice or that a reader would refuse, RunError when the file cannot be written.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> tensors,
                    const SafetensorsMetadata& metadata = kDefaultMetadata);

  /// The declared tensors in the order in which write() takes them: by dtype (i64, f64, f32, i32,
  /// bf16: the rank of the reference implementation), then by name.
  const std::vector<TensorSpec>& order() const { return order_; }
  /// Writes the next tensor of order(): any strides, any device, in row-major order of its logical
  /// elements. Floating dtypes are converted to the declared one. Throws ShapeError or DTypeError
  /// when it does not fit its declaration, RunError when the disk is full.
  void write(const std::string& name, const Tensor& tensor);
  /// Syncs the file; all tensors must be written. It still has its temporary name.
  void close();
  /// close(), then gives the file its name. Not called: nothing stays behind.
  void publish();

 private:
  void write_values(const TensorSpec& spec, const Tensor& tensor);

  std::vector<TensorSpec> order_;
  size_t next_ = 0;
  OutputFile file_;
};

/// Greedy split in the given order into shards of at most `max_bytes`; a larger tensor gets its own
/// shard. At least one shard; it may be empty.
std::vector<std::vector<TensorSpec>> plan_shards(const std::vector<TensorSpec>& tensors,
                                                 int64_t max_bytes);

/// Writes PREFIX.safetensors, or PREFIX-00001-of-0000n.safetensors and so on with
/// PREFIX.safetensors.index.json when the tensors need more than one file of `max_shard_bytes`.
class ShardedWriter {
 public:
  /// Throws ConfigError as SafetensorsWriter does, for max_shard_bytes < 1, and for a folder that
  /// holds a file of this prefix already: old and new shards would mix.
  ShardedWriter(std::filesystem::path folder, const std::string& prefix, int64_t max_shard_bytes,
                const std::vector<TensorSpec>& tensors,
                SafetensorsMetadata metadata = kDefaultMetadata);

  /// All declared tensors in the order in which write() takes them, shard after shard.
  const std::vector<TensorSpec>& order() const { return order_; }
  /// As SafetensorsWriter::write.
  void write(const std::string& name, const Tensor& tensor);
  /// Gives all files their names, the index last. Not called: nothing stays behind.
  void publish();

 private:
  std::string file_name(size_t shard) const;
  void begin_shard();

  std::filesystem::path folder_;
  std::string prefix_;
  SafetensorsMetadata metadata_;
  std::vector<std::vector<TensorSpec>> shards_;  // each in file order
  std::vector<TensorSpec> order_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;  // of the shards begun so far
  size_t left_in_shard_ = 0;                                 // tensors of the last of them
};

}  // namespace smelt
