// A model's folder, open for reading: a checkpoint of ours or a Hugging Face folder. config.json
// says what the model is; its tensors are found under our names, whatever the files call them and
// whether each expert has tensors of its own or all experts of a layer are fused.
#pragma once

#include <string>

#include "apps/common/families.h"
#include "apps/common/model_json.h"
#include "apps/common/safetensors.h"

namespace smelt {

/// Where the files hold one of our tensors: consecutive elements of a tensor.
struct StoredTensor {
  std::string name;   // in the files
  Shape shape;        // that it must have
  int64_t begin = 0;  // first element, in row-major order
};

class ModelFolder {
 public:
  /// Reads config.json and the files' headers. @throws IoError
  explicit ModelFolder(const std::string& folder);

  const std::string& path() const { return path_; }
  const ModelJson& json() const { return json_; }
  const SafetensorsFolder& files() const { return files_; }
  bool has_selection_biases() const { return files_.contains(expert_bias_name(0)); }

  /// Holds the files against a model of these sizes before anything of its size is allocated: every
  /// tensor there with its shape and a floating dtype, and none beside them but old rotary tables.
  /// A tied head may be there too if it repeats the embedding.
  /// @throws IoError naming the file and the tensor
  void check(const ModelConfig& config) const;
  /// @param shape  of our tensor. A tied embedding may stand under the head's name.
  StoredTensor find(const std::string& ours, const Shape& shape) const;
  /// Whether two tensors have the same type, shape and bytes.
  bool same_bytes(const std::string& a, const std::string& b) const;

 private:
  std::string path_;
  ModelJson json_;
  SafetensorsFolder files_;
};

}  // namespace smelt
