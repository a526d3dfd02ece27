#include "apps/export/export.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "apps/common/atomic_folder.h"
#include "apps/common/checkpoint.h"
#include "apps/common/model_folder.h"
#include "apps/common/run_folder.h"
#include "apps/common/safetensors_convert.h"
#include "apps/common/tokenizer/tokenizer.h"
#include "moe/unroll.h"

namespace smelt {
namespace {

namespace fs = std::filesystem;

/// Files beside the weights that go along as they are.
constexpr const char* kCompanions[] = {"tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "tokenizer.model",
                                       "chat_template.jinja",
                                       "generation_config.json"};

/// A tensor of the new folder and where it comes from.
struct Planned {
  TensorSpec spec;
  std::string source;  // our name in the folder that is read
  double factor = 1;
};

void set_dtype(TensorSpec& spec, FileType wanted, const std::string& in_file) {
  spec.half = wanted == FileType::f16 || (wanted == FileType::same && in_file == "F16");
  spec.dtype = spec.half || wanted == FileType::f32 ? DType::f32
               : wanted == FileType::bf16           ? DType::bf16
                                                    : *safetensors::find_dtype(in_file)->dtype;
}

/// The model to be written. @throws ConfigError where it has no such form
ModelConfig output_config(const ModelFolder& in, const ExportOptions& options) {
  const ModelConfig& config = in.json().config;
  const bool biased = in.has_selection_biases();
  ModelConfig out = options.unroll ? unrolled_config(config) : config;
  if (options.unroll) {
    const std::string obstacle = why_not_plain(out, biased);
    SMELT_CHECK(ConfigError, obstacle.empty(),
                "--unroll: " << in.path() << " has no form as Qwen3-MoE, OLMoE or Mixtral for "
                             << obstacle);
  }
  switch (options.head) {
    case HeadForm::as_it_is:
      break;
    case HeadForm::untied:
      SMELT_CHECK(ConfigError, config.tie_embeddings,
                  "--untied: the head of " << in.path() << " is its own already");
      out.tie_embeddings = false;
      break;
    case HeadForm::tied:
      SMELT_CHECK(ConfigError, out.num_layers == config.num_layers,
                  "--tied and --unroll exclude each other: a plain folder has no way to store a "
                  "layer once that stands in it several times; without --unroll the loop is that "
                  "form");
      SMELT_CHECK(
          ConfigError,
          config.tie_embeddings || in.same_bytes("lm_head.weight", "model.embed_tokens.weight"),
          "--tied: the head of " << in.path()
                                 << " does not repeat the embedding, so it cannot be left "
                                    "out");
      out.tie_embeddings = true;
      break;
  }
  return out;
}

std::vector<Planned> plan_tensors(const ModelFolder& in, const ModelConfig& out, Family family,
                                  const ExportOptions& options) {
  const ModelConfig& config = in.json().config;
  const ExecutionPlan looped(config.num_layers, config.loop);
  std::vector<Planned> planned;
  for_each_tensor(out, in.has_selection_biases(), [&](const std::string& ours, const Shape& shape) {
    Planned tensor{{family_name(family, ours), DType::f32, shape}, ours};
    if (options.unroll) {
      UnrolledSource source = unrolled_source(ours, looped);
      tensor.source = std::move(source.name);
      tensor.factor = source.factor;
    }
    if (ours == "lm_head.weight" && config.tie_embeddings)
      tensor.source = "model.embed_tokens.weight";
    const StoredTensor stored = in.find(tensor.source, shape);
    set_dtype(tensor.spec, options.dtype, in.files().info(stored.name).dtype);
    planned.push_back(std::move(tensor));
  });
  return planned;
}

/// What a value becomes in the file.
double stored_value(double x, const TensorSpec& spec) {
  if (spec.half) return safetensors::half_to_float(safetensors::float_to_half(float(x)));
  return spec.dtype == DType::f64 ? x : spec.dtype == DType::f32 ? float(x) : bf16(float(x));
}

/// Multiplies a tensor in place and refuses one that its new type cannot hold: finite values that
/// become infinite, or so many that fall below the type's range that the whole loses more than bf16
/// loses by rounding.
template <typename T>
void multiply_and_check(const std::string& name, T* values, int64_t count, const Planned& planned) {
  const TensorSpec& spec = planned.spec;
  const std::string_view type = spec.half ? "f16" : name_of(spec.dtype);
  double lost = 0, whole = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double exact = double(values[i]) * planned.factor;
    values[i] = T(exact);
    if (!std::isfinite(exact)) continue;
    const double error = exact - stored_value(exact, spec);
    SMELT_CHECK(ConfigError, std::isfinite(error),
                name << ": the value " << exact << " is beyond the range of " << type
                     << "; choose another --dtype");
    lost += error * error;
    whole += exact * exact;
  }
  SMELT_CHECK(ConfigError, lost <= 0x1p-16 * whole,
              name << ": its values, times the residual scale " << planned.factor
                   << ", lie below the range of " << type << ": underflow takes "
                   << 100 * std::sqrt(lost / whole) << " % of it; choose another --dtype");
}

Tensor read_tensor(const ModelFolder& in, const Planned& planned) {
  const TensorSpec& spec = planned.spec;
  const StoredTensor stored = in.find(planned.source, spec.shape);
  const SafetensorsFile& file = in.files().file_of(stored.name);
  const TensorInfo& info = file.info(stored.name);
  const DType there = *safetensors::find_dtype(info.dtype)->dtype;
  const bool as_it_is =
      planned.factor == 1 && spec.dtype == there && spec.half == (info.dtype == "F16");
  const DType wide = there == DType::f64 || spec.dtype == DType::f64 ? DType::f64 : DType::f32;
  const Tensor tensor = Tensor::empty(spec.shape, {as_it_is ? there : wide, {}});
  read_all({{&file, stored.name, tensor, stored.begin}});
  if (as_it_is) return tensor;
  if (wide == DType::f64) {
    multiply_and_check(planned.source, tensor.data<double>(), tensor.numel(), planned);
  } else {
    multiply_and_check(planned.source, tensor.data<float>(), tensor.numel(), planned);
  }
  return tensor;
}

void copy_companions(const ModelFolder& in, const std::string& folder) {
  for (const char* name : kCompanions) {
    if (fs::exists(in.path() + "/" + name))
      write_file(folder + "/" + name, read_text_file(in.path() + "/" + name));
  }
  // Without it transformers would take a tokenizer of the model type's own.
  if (fs::exists(folder + "/tokenizer.json") && !fs::exists(folder + "/tokenizer_config.json")) {
    try {
      write_file(folder + "/tokenizer_config.json", load_tokenizer(in.path())->config_text());
    } catch (const ConfigError& error) {
      std::fprintf(stderr, "no tokenizer_config.json is written: %s\n", error.what());
    }
  }
  if (!fs::exists(folder + "/generation_config.json"))
    write_file(folder + "/generation_config.json", generation_config_json(in.json().eos_ids));
}

/// Its word in config.json: that of the embedding, as the bulk of the tensors is.
std::string dtype_word(const std::vector<Planned>& planned) {
  const TensorSpec& first = planned.front().spec;
  return first.half                   ? "float16"
         : first.dtype == DType::bf16 ? "bfloat16"
         : first.dtype == DType::f64  ? "float64"
                                      : "float32";
}

}  // namespace

ExportResult export_model(const ExportOptions& options) {
  const ModelFolder in(resolve_checkpoint(options.source));
  in.check(in.json().config);
  const ModelConfig out = output_config(in, options);
  const Family family = family_of(out, in.has_selection_biases());
  const std::vector<Planned> planned = plan_tensors(in, out, family, options);

  AtomicFolder folder(options.out);
  const std::string path = folder.path().string();
  std::map<std::string, const Planned*> by_name;
  std::vector<TensorSpec> specs;
  ExportResult result{in.path(), to_text(family), out, int64_t(planned.size()), 0};
  for (const Planned& tensor : planned) {
    by_name[tensor.spec.name] = &tensor;
    specs.push_back(tensor.spec);
    result.bytes += tensor.spec.bytes();
  }
  std::sort(specs.begin(), specs.end(),
            [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  ShardedWriter writer(path, "model", options.shard_bytes, specs);
  for (const TensorSpec& spec : writer.order())
    writer.write(spec.name, read_tensor(in, *by_name.at(spec.name)));
  writer.publish();
  write_file(
      path + "/config.json",
      write_model_json(out, in.json().eos_ids, in.has_selection_biases(), dtype_word(planned)));
  copy_companions(in, path);
  folder.commit();
  return result;
}

}  // namespace smelt
