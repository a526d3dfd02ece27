// The header and the index of the safetensors format as text: parsing with every check that needs
// no tensor data, and printing. Private to the reader and the writer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/common/safetensors.h"

namespace smelt::safetensors {

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // limit of the reference implementation
constexpr size_t kMaxTensors = 1'000'000;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxRank = 16;

/// A dtype of the format. The table's order is the rank by which writers sort, lowest first.
struct FileDType {
  std::string_view name;
  int bits;                    // of one element
  std::optional<DType> dtype;  // how the values are held here; none for dtypes we do not read
};
/// nullptr for a name that the format does not have.
const FileDType* find_dtype(std::string_view name);
const FileDType& file_dtype(const TensorSpec& tensor);

/// A name in quotes for an error line: control characters escaped, long names cut.
std::string in_quotes(std::string_view text);
/// Why a tensor name is not allowed, or nullptr.
const char* name_fault(std::string_view name);

struct Header {
  std::vector<std::pair<std::string, TensorInfo>> tensors;  // sorted by bytes
  SafetensorsMetadata metadata;
};
/// Parses and checks a header against the size of the data section. `file` names the file in
/// errors. Throws IoError.
Header parse_header(std::string_view text, int64_t data_bytes, const std::string& file);
/// The header of tensors packed in the given order, padded to a multiple of 8.
std::string print_header(const std::vector<TensorSpec>& tensors,
                         const SafetensorsMetadata& metadata);

/// The weight_map of an index: tensor name and file name, in the order of the file. Throws IoError.
std::vector<std::pair<std::string, std::string>> parse_index(std::string_view text,
                                                             const std::string& file);
/// `weight_map` must be sorted by tensor.
std::string print_index(const std::vector<std::pair<std::string, std::string>>& weight_map,
                        int64_t total_size, int64_t total_parameters);

}  // namespace smelt::safetensors
