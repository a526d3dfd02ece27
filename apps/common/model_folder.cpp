#include "apps/common/model_folder.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "apps/common/safetensors_format.h"

namespace smelt {
namespace {

const std::string kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight";

}  // namespace

ModelFolder::ModelFolder(const std::string& folder)
    : path_(folder), json_(read_model_json(folder)), files_(folder, "model") {}

StoredTensor ModelFolder::find(const std::string& ours, const Shape& shape) const {
  const std::string theirs = family_name(json_.family, ours);
  if (files_.contains(theirs)) return {theirs, shape, 0};
  // transformers 5.x names the tensors of every family as we do, once its own loader ran.
  if (files_.contains(ours)) return {ours, shape, 0};
  FusedPart fused = fused_part(ours, shape, json_.config.num_experts);
  if (!fused.name.empty() && files_.contains(fused.name))
    return {std::move(fused.name), std::move(fused.shape), fused.begin};
  if (ours == kEmbedding && json_.config.tie_embeddings && files_.contains(kHead))
    return {kHead, shape, 0};
  return {theirs, shape, 0};  // asking for it names what is missing
}

void ModelFolder::check(const ModelConfig& config) const {
  std::unordered_set<std::string> known;
  for_each_tensor(config, false, [&](const std::string& ours, const Shape& shape) {
    const StoredTensor stored = find(ours, shape);
    const SafetensorsFile& file = files_.file_of(stored.name);
    const TensorInfo& info = file.info(stored.name);
    const std::string quoted = safetensors::in_quotes(stored.name);
    SMELT_CHECK(IoError, info.shape == stored.shape,
                file.path().string()
                    << ": tensor " << quoted << " gives shape " << to_string(info.shape)
                    << "; must be " << to_string(stored.shape));
    const auto dtype = safetensors::find_dtype(info.dtype)->dtype;
    SMELT_CHECK(IoError, dtype && is_floating(*dtype),
                file.path().string() << ": tensor " << quoted << " is " << info.dtype
                                     << ", which does not convert to f32");
    known.insert(stored.name);
  });
  for (const std::string& name : files_.names()) {
    const bool tied_head = config.tie_embeddings && name == kHead;
    SMELT_CHECK(IoError,
                known.count(name) > 0 || tied_head || name.ends_with("rotary_emb.inv_freq") ||
                    name.ends_with(".expert_bias"),
                files_.file_of(name).path().string()
                    << ": tensor '" << name << "' has no place in the model of config.json");
  }
  // Readers differ in what they do with two different ones; we do not choose.
  if (config.tie_embeddings && files_.contains(kHead) && files_.contains(kEmbedding))
    SMELT_CHECK(IoError, same_bytes(kHead, kEmbedding),
                path_ << ": tie_word_embeddings = true, but " << kHead << " differs from "
                      << kEmbedding << "; set it to false to use both");
}

bool ModelFolder::same_bytes(const std::string& a, const std::string& b) const {
  constexpr int64_t kBlock = 1 << 20;  // elements
  const TensorInfo &x = files_.info(a), &y = files_.info(b);
  if (x.dtype != y.dtype || x.shape != y.shape) return false;
  const int64_t count = numel_of(x.shape);
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    const Tensor u = Tensor::empty({n}), v = Tensor::empty({n});
    files_.file_of(a).read_elements(a, u, at);
    files_.file_of(b).read_elements(b, v, at);
    if (std::memcmp(u.raw(), v.raw(), size_t(u.bytes())) != 0) return false;
  }
  return true;
}

}  // namespace smelt
