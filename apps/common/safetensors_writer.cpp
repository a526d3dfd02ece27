#include <algorithm>
#include <unordered_set>

#include "apps/common/safetensors_convert.h"

namespace smelt {

using safetensors::in_quotes;

namespace {

/// Views and conversions go through buffers of this size.
constexpr int64_t kBlockBytes = 4 << 20;

std::vector<TensorSpec> file_order(std::vector<TensorSpec> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    const auto* rank_a = &safetensors::file_dtype(a);
    const auto* rank_b = &safetensors::file_dtype(b);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  return tensors;
}

/// Refuses what the reader would refuse.
void check_specs(const std::string& where, const std::vector<TensorSpec>& tensors) {
  SMELT_CHECK(ConfigError, tensors.size() <= safetensors::kMaxTensors,
              where << ": " << tensors.size() << " tensors; at most " << safetensors::kMaxTensors
                    << " are allowed");
  std::unordered_set<std::string> names;
  int64_t total = 0;
  for (const TensorSpec& tensor : tensors) {
    const char* fault = safetensors::name_fault(tensor.name);
    SMELT_CHECK(ConfigError, fault == nullptr,
                where << ": tensor name " << in_quotes(tensor.name) << " " << fault);
    SMELT_CHECK(ConfigError, names.insert(tensor.name).second,
                where << ": tensor " << in_quotes(tensor.name) << " is declared twice");
    SMELT_CHECK(ConfigError, tensor.shape.size() <= safetensors::kMaxRank,
                where << ": tensor " << in_quotes(tensor.name) << " has " << tensor.shape.size()
                      << " dimensions; at most " << safetensors::kMaxRank << " are allowed");
    int64_t bits = 0;
    SMELT_CHECK(
        ConfigError,
        !__builtin_mul_overflow(numel_of(tensor.shape), 8 * tensor.element_bytes(), &bits) &&
            !__builtin_add_overflow(total, bits / 8, &total),
        where << ": tensor " << in_quotes(tensor.name) << " of shape " << to_string(tensor.shape)
              << " is too large");
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> tensors,
                                     const SafetensorsMetadata& metadata)
    : order_(file_order(std::move(tensors))), file_(std::move(path)) {
  const std::string where = file_.path().string();
  check_specs(where, order_);
  const std::string header = safetensors::print_header(order_, metadata);
  SMELT_CHECK(ConfigError, int64_t(header.size()) <= safetensors::kMaxHeaderBytes,
              where << ": the header takes " << header.size() << " bytes; at most "
                    << safetensors::kMaxHeaderBytes << " are allowed");
  const uint64_t size = header.size();
  file_.write(&size, sizeof(size));
  file_.write(header);
}

void SafetensorsWriter::write(const std::string& name, const Tensor& tensor) {
  check_defined("SafetensorsWriter", name.c_str(), tensor);
  SMELT_CHECK(ShapeError, next_ < order_.size() && order_[next_].name == name,
              file_.path().string()
                  << ": tensor " << in_quotes(name) << " comes out of turn; next is "
                  << (next_ < order_.size() ? in_quotes(order_[next_].name) : "nothing"));
  const TensorSpec& spec = order_[next_];
  SMELT_CHECK(ShapeError, tensor.shape() == spec.shape,
              file_.path().string()
                  << ": tensor " << in_quotes(name) << " is declared as " << to_string(spec.shape)
                  << ", given as " << to_string(tensor.shape()));
  SMELT_CHECK(
      DTypeError,
      tensor.dtype() == spec.dtype || (is_floating(tensor.dtype()) && is_floating(spec.dtype)),
      file_.path().string() << ": tensor " << in_quotes(name) << " is declared as " << spec.dtype
                            << ", to which " << tensor.dtype() << " does not convert");
  write_values(spec, tensor);
  ++next_;
}

void SafetensorsWriter::write_values(const TensorSpec& spec, const Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const bool plain = tensor.dtype() == spec.dtype && tensor.device().is_cpu() &&
                     tensor.is_contiguous() && !spec.half;
  if (plain || tensor.bytes() <= kBlockBytes) {
    const Tensor block = plain ? tensor : tensor.to(Device{}).to(spec.dtype).contiguous();
    if (spec.half) {
      std::vector<uint16_t> halves(size_t(block.numel()));
      std::transform(block.data<float>(), block.data<float>() + block.numel(), halves.begin(),
                     safetensors::float_to_half);
      file_.write(halves.data(), 2 * halves.size());
    } else {
      file_.write(block.raw(), size_t(block.bytes()));
    }
    return;
  }
  // The first dimension above 1 is the outermost in row-major order: its halves are consecutive.
  int64_t d = 0;
  while (tensor.dim(d) == 1) ++d;
  const int64_t middle = tensor.dim(d) / 2;
  write_values(spec, tensor.slice(d, 0, middle));
  write_values(spec, tensor.slice(d, middle, tensor.dim(d)));
}

void SafetensorsWriter::close() {
  SMELT_CHECK(ShapeError, next_ == order_.size(),
              file_.path().string() << ": tensor " << in_quotes(order_[next_].name)
                                    << " is declared but was not written");
  file_.close();
}

void SafetensorsWriter::publish() {
  close();
  file_.publish();
}

std::vector<std::vector<TensorSpec>> plan_shards(const std::vector<TensorSpec>& tensors,
                                                 int64_t max_bytes) {
  SMELT_CHECK(ConfigError, max_bytes >= 1, "max_shard_bytes must be at least 1, not " << max_bytes);
  std::vector<std::vector<TensorSpec>> shards;
  std::vector<TensorSpec> current;
  int64_t current_bytes = 0;
  for (const TensorSpec& tensor : tensors) {
    const int64_t bytes = tensor.bytes();
    if (bytes > max_bytes) {
      // Goes before the shard being filled, as in huggingface_hub, so that file names agree.
      shards.push_back({tensor});
      continue;
    }
    if (bytes > max_bytes - current_bytes) {
      shards.push_back(std::exchange(current, {}));
      current_bytes = 0;
    }
    current.push_back(tensor);
    current_bytes += bytes;
  }
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
  return shards;
}

ShardedWriter::ShardedWriter(std::filesystem::path folder, const std::string& prefix,
                             int64_t max_shard_bytes, const std::vector<TensorSpec>& tensors,
                             SafetensorsMetadata metadata)
    : folder_(std::move(folder)), prefix_(prefix), metadata_(std::move(metadata)) {
  check_specs(folder_.string(), tensors);
  for (const std::string& name : {prefix_ + ".safetensors", prefix_ + ".safetensors.index.json"}) {
    std::error_code error;
    SMELT_CHECK(ConfigError, !std::filesystem::exists(folder_ / name, error),
                (folder_ / name).string() << ": exists already; choose another folder");
  }
  shards_ = plan_shards(tensors, max_shard_bytes);
  for (auto& shard : shards_) {
    shard = file_order(std::move(shard));
    order_.insert(order_.end(), shard.begin(), shard.end());
  }
  begin_shard();
}

std::string ShardedWriter::file_name(size_t shard) const {
  if (shards_.size() == 1) return prefix_ + ".safetensors";
  const auto five_digits = [](size_t n) {
    const std::string digits = std::to_string(n);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  return prefix_ + "-" + five_digits(shard + 1) + "-of-" + five_digits(shards_.size()) +
         ".safetensors";
}

void ShardedWriter::begin_shard() {
  const size_t shard = writers_.size();
  writers_.push_back(
      std::make_unique<SafetensorsWriter>(folder_ / file_name(shard), shards_[shard], metadata_));
  left_in_shard_ = shards_[shard].size();
}

void ShardedWriter::write(const std::string& name, const Tensor& tensor) {
  // Shards begin only when needed, so that no more than one file is open.
  if (left_in_shard_ == 0 && writers_.size() < shards_.size()) {
    writers_.back()->close();
    begin_shard();
  }
  writers_.back()->write(name, tensor);
  --left_in_shard_;
}

void ShardedWriter::publish() {
  SMELT_CHECK(ShapeError, writers_.size() == shards_.size(),
              folder_.string() << ": only " << writers_.size() << " of " << shards_.size()
                               << " shards were written");
  writers_.back()->close();
  for (const auto& writer : writers_) writer->publish();
  if (shards_.size() == 1) return;
  std::vector<std::pair<std::string, std::string>> weight_map;
  int64_t total_size = 0;
  int64_t total_parameters = 0;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    for (const TensorSpec& tensor : shards_[shard]) {
      weight_map.emplace_back(tensor.name, file_name(shard));
      total_size += tensor.bytes();
      total_parameters += numel_of(tensor.shape);
    }
  }
  std::sort(weight_map.begin(), weight_map.end());
  write_file(folder_ / (prefix_ + ".safetensors.index.json"),
             safetensors::print_index(weight_map, total_size, total_parameters));
}

}  // namespace smelt
