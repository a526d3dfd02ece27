#include "apps/common/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include <boost/json.hpp>

#include "apps/common/atomic_folder.h"
#include "apps/common/exact_json.h"
#include "apps/common/metrics.h"
#include "apps/common/model_folder.h"
#include "apps/common/run_folder.h"
#include "dist/collectives.h"
#include "tensor/elementwise.h"

namespace smelt {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr int64_t kMaxShardBytes = int64_t{5} << 30;

/// A tensor of the checkpoint that this rank holds.
struct LocalTensor {
  std::string name;
  Tensor values;
  bool expert;
};

/// Pieces of all parameters, as views of flat(parameter index).
std::vector<LocalTensor> pieces_of(MoeTransformer& model, const std::string& prefix,
                                   const std::function<Tensor(size_t)>& flat) {
  std::vector<LocalTensor> tensors;
  const std::vector<Parameter*> parameters = model.parameters().all();
  for (size_t p = 0; p < parameters.size(); ++p) {
    for (const TensorPiece& piece : parameters[p]->pieces) {
      tensors.push_back(
          {prefix + piece.name, Parameter::view_piece(flat(p), piece), parameters[p]->expert});
    }
  }
  return tensors;
}

/// Selection biases by layer, [visits, E], as copies; empty when the model has none.
std::vector<LocalTensor> biases_of(const MoeTransformer& model) {
  std::vector<LocalTensor> tensors;
  if (!model.expert_bias(0).defined()) return tensors;
  const ExecutionPlan& plan = model.plan();
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    const Tensor all = Tensor::empty({plan.visits_of(layer), model.config().num_experts},
                                     model.expert_bias(0).options());
    for (int64_t visit = 0; visit < plan.visits_of(layer); ++visit) {
      all.slice(0, visit, visit + 1)
          .copy_(model.expert_bias(plan.step_of(layer, visit)).view({1, -1}));
    }
    tensors.push_back({expert_bias_name(layer), all, false});
  }
  return tensors;
}

/// Writes the tensors of all ranks as safetensors files; rank 0 holds the file and the replicated
/// tensors, the ranks of its expert-parallel group send the experts one at a time in file order.
class ParallelWriter {
 public:
  ParallelWriter(const dist::World& world, const std::string& folder, const std::string& prefix,
                 const std::vector<LocalTensor>& declared)
      : group_(world.world()) {
    const int owners = world.expert_parallel().size();
    std::vector<TensorSpec> specs;
    for (int r = 0; r < owners; ++r) {
      std::string list;
      if (group_.rank() == r) {
        for (const LocalTensor& tensor : declared) {
          if (r > 0 && !tensor.expert) continue;
          list += tensor.name + " " + std::string(name_of(tensor.values.dtype()));
          for (const int64_t d : tensor.values.shape()) list += " " + std::to_string(d);
          list += "\n";
        }
      }
      std::istringstream lines(dist::broadcast(list, r, group_));
      for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        TensorSpec spec;
        std::string dtype;
        words >> spec.name >> dtype;
        spec.dtype = dtype == "f64" ? DType::f64 : DType::f32;
        for (int64_t d = 0; words >> d;) spec.shape.push_back(d);
        owner_[spec.name] = r;
        specs.push_back(std::move(spec));
      }
    }
    // The split into shards follows this order; it must not depend on who holds what.
    std::sort(specs.begin(), specs.end(),
              [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
    if (group_.rank() == 0) writer_.emplace(folder, prefix, kMaxShardBytes, specs);
    std::string order;
    if (writer_) {
      for (const TensorSpec& spec : writer_->order()) order += spec.name + "\n";
    }
    std::istringstream names(dist::broadcast(order, 0, group_));
    for (std::string name; std::getline(names, name);) order_.push_back(name);
  }

  /// Writes all tensors in the order of the file. Every rank calls values(name) for each of them in
  /// this order: its tensor, or an undefined one where it has none.
  void write(const std::function<Tensor(const std::string&)>& values) {
    for (const std::string& name : order_) {
      const int owner = owner_.at(name);
      const Tensor held = values(name);
      if (group_.rank() == owner) {
        SMELT_CHECK(RunError, std::isfinite(sum_squares(held).item()),
                    "checkpoint: tensor '"
                        << name << "' holds a value that is not finite; nothing was saved");
      }
      if (group_.rank() == 0) {
        writer_->write(name, owner == 0 ? held : dist::recv(owner, group_));
      } else if (group_.rank() == owner) {
        dist::send(held, 0, group_);
      }
    }
  }

  void publish() {
    if (writer_) writer_->publish();
  }

 private:
  dist::Group group_;
  std::optional<ShardedWriter> writer_;
  std::vector<std::string> order_;
  std::map<std::string, int> owner_;
};

json::object to_json(const TrainerState& state, const RunConfig& config) {
  return {
      {"format", 1},
      {"step", state.step},
      {"optimizer_steps", state.optimizer_steps},
      {"sequences", state.sequences},
      {"tokens", state.tokens},
      {"skipped_steps", state.skipped_steps},
      {"mean_context", state.mean_context},
      {"data_fingerprint", state.data_fingerprint},
      {"seed", config.train.seed},
      {"adamw",
       {{"beta1", config.optim.beta1}, {"beta2", config.optim.beta2}, {"eps", config.optim.eps}}}};
}

json::object read_state_object(const std::string& path) {
  const std::string file = path + "/trainer_state.json";
  boost::system::error_code error;
  const json::value value = parse_json(read_text_file(file), error);
  SMELT_CHECK(IoError, !error && value.is_object(), file << ": not a JSON object");
  return value.as_object();
}

template <typename T>
T state_value(const json::object& object, const char* key, const std::string& path) {
  const json::value* value = object.if_contains(key);
  SMELT_CHECK(IoError, value != nullptr,
              path << "/trainer_state.json: key '" << key << "' is missing");
  const auto result = json::try_value_to<T>(*value);
  SMELT_CHECK(IoError, result.has_value(),
              path << "/trainer_state.json: " << key << " = " << json::serialize(*value)
                   << " has the wrong type");
  return *result;
}

/// Reads every piece of every parameter into flat(parameter index), naming what does not fit.
void read_pieces(const ModelFolder& folder, MoeTransformer& model,
                 const std::function<Tensor(size_t)>& flat) {
  folder.check(model.config());
  std::vector<TensorRead> reads;
  for (const LocalTensor& tensor : pieces_of(model, "", flat)) {
    const StoredTensor stored = folder.find(tensor.name, tensor.values.shape());
    reads.push_back(
        {&folder.files().file_of(stored.name), stored.name, tensor.values, stored.begin});
  }
  read_all(std::move(reads));
}

void read_biases(const ModelFolder& folder, MoeTransformer& model) {
  if (!folder.has_selection_biases()) return;
  model.enable_expert_bias();
  const ExecutionPlan& plan = model.plan();
  for (int64_t layer = 0; layer < plan.num_layers(); ++layer) {
    for (int64_t visit = 0; visit < plan.visits_of(layer); ++visit) {
      folder.files().read_into(expert_bias_name(layer),
                               model.expert_bias(plan.step_of(layer, visit)).view({1, -1}), visit,
                               visit + 1);
    }
  }
}

/// Weights and biases of a folder into the optimizer's masters.
void read_masters(const ModelFolder& folder, MoeTransformer& model, ShardedOptimizer& optimizer) {
  const std::vector<Parameter*> parameters = model.parameters().all();
  read_pieces(folder, model, [&](size_t p) { return optimizer.master(*parameters[p]); });
  optimizer.refresh_from_masters();
  read_biases(folder, model);
}

/// Whether a configuration key decides which tensors a model has, or their sizes.
bool decides_tensors(const std::string& key) {
  static const std::set<std::string> keys = {
      "model.hidden_size",        "model.num_layers",
      "model.num_heads",          "model.num_kv_heads",
      "model.head_dim",           "model.num_experts",
      "model.vocab_size",         "model.qk_norm",
      "model.expert_hidden_size", "model.shared_expert_hidden_size",
      "model.tie_embeddings"};
  return keys.count(key) > 0;
}

}  // namespace

void save_checkpoint(const std::string& path, MoeTransformer& model,
                     const ShardedOptimizer& optimizer, const dist::World& world,
                     const TrainerState& state, const RunConfig& config,
                     const TokenizerFiles& tokenizer) {
  const bool first = world.world().rank() == 0;
  std::optional<AtomicFolder> folder;
  if (first) folder.emplace(path);
  const std::string where = dist::broadcast(first ? folder->path().string() : "", 0, world.world());
  const std::vector<Parameter*> parameters = model.parameters().all();

  std::vector<LocalTensor> tensors =
      pieces_of(model, "", [&](size_t p) { return optimizer.master(*parameters[p]); });
  const Family family = family_of(model.config(), model.expert_bias(0).defined());
  for (LocalTensor& tensor : tensors) tensor.name = family_name(family, tensor.name);
  for (LocalTensor& bias : biases_of(model)) tensors.push_back(std::move(bias));
  ParallelWriter model_writer(world, where, "model", tensors);
  std::map<std::string, Tensor> weights;
  for (const LocalTensor& tensor : tensors) weights[tensor.name] = tensor.values;
  model_writer.write([&](const std::string& name) {
    const auto found = weights.find(name);
    return found == weights.end() ? Tensor() : found->second;
  });
  model_writer.publish();

  using Moment = ShardedOptimizer::Moment;
  struct Source {
    ShardedOptimizer::MomentGather* gather;
    const Parameter* parameter;
    const TensorPiece* piece;
  };
  ShardedOptimizer::MomentGather firsts(optimizer, Moment::first),
      seconds(optimizer, Moment::second);
  std::vector<LocalTensor> declared;
  std::map<std::string, Source> sources;
  for (const auto& [prefix, gather] : {std::pair("exp_avg.", &firsts), {"exp_avg_sq.", &seconds}}) {
    for (const Parameter* parameter : parameters) {
      for (const TensorPiece& piece : parameter->pieces) {
        declared.push_back({prefix + piece.name,
                            Parameter::view_piece(optimizer.master(*parameter), piece),
                            parameter->expert});
        sources[declared.back().name] = {gather, parameter, &piece};
      }
    }
  }
  ParallelWriter optimizer_writer(world, where, "optimizer", declared);
  optimizer_writer.write([&](const std::string& name) {
    const auto found = sources.find(name);
    if (found == sources.end()) return Tensor();
    const auto& [gather, parameter, piece] = found->second;
    return Parameter::view_piece(gather->of(*parameter), *piece);
  });
  optimizer_writer.publish();

  if (first) {
    write_file(where + "/config.json",
               write_model_json(model.config(), tokenizer.eod_id, model.expert_bias(0).defined()));
    write_file(where + "/config.ini", write_ini(config));
    write_file(where + "/trainer_state.json", json_line(to_json(state, config)) + "\n");
    if (!tokenizer.json.empty()) {
      write_file(where + "/tokenizer.json", tokenizer.json);
      write_file(where + "/tokenizer_config.json", tokenizer.config);
    }
    folder->commit();
  }
  dist::barrier(world.world());
}

void load_model(const std::string& path, MoeTransformer& model) {
  const ModelFolder folder(path);
  const std::vector<Parameter*> parameters = model.parameters().all();
  read_pieces(folder, model, [&](size_t p) { return parameters[p]->value.data(); });
  read_biases(folder, model);
}

std::vector<ConfigDifference> load_initial_weights(const std::string& path, MoeTransformer& model,
                                                   ShardedOptimizer& optimizer) {
  RunConfig theirs, ours;
  const ModelFolder folder(path);
  theirs.model = folder.json().config;
  ours.model = model.config();
  std::vector<ConfigDifference> others;
  for (ConfigDifference& d : config_differences(theirs, ours)) {
    SMELT_CHECK(ConfigError, !decides_tensors(d.key),
                "run.init = " << path << ": " << d.key << " = " << d.before << " there, but "
                              << d.after << " in this configuration; it must be the same");
    if (d.key != "model.init_std" && d.key != "model.max_seq_len") others.push_back(std::move(d));
  }
  const bool biased = model.expert_bias(0).defined();
  SMELT_CHECK(
      ConfigError, biased || !folder.has_selection_biases(),
      "run.init = " << path << ": its routers have selection biases; set moe.balance = bias");
  read_masters(folder, model, optimizer);
  return others;
}

TrainerState load_checkpoint(const std::string& path, MoeTransformer& model,
                             ShardedOptimizer& optimizer, const RunConfig& config) {
  const json::object object = read_state_object(path);
  const json::value* adamw = object.if_contains("adamw");
  SMELT_CHECK(IoError, adamw != nullptr && adamw->is_object(),
              path << "/trainer_state.json: key 'adamw' is missing");
  const std::pair<const char*, double> hyper[] = {
      {"beta1", config.optim.beta1}, {"beta2", config.optim.beta2}, {"eps", config.optim.eps}};
  for (const auto& [key, value] : hyper) {
    const auto saved = state_value<double>(adamw->as_object(), key, path);
    SMELT_CHECK(ConfigError, saved == value,
                "optim." << key << " = " << value << " differs from " << saved
                         << ", with which the moments in " << path << " were made");
  }

  read_masters(ModelFolder(path), model, optimizer);
  const SafetensorsFolder moments(path, "optimizer");
  const auto fill = [&](const char* prefix) {
    return [&moments, prefix](const Parameter& parameter, const Tensor& whole) {
      for (const TensorPiece& piece : parameter.pieces) {
        moments.read_into(prefix + piece.name, Parameter::view_piece(whole, piece));
      }
    };
  };
  optimizer.scatter_moments(ShardedOptimizer::Moment::first, fill("exp_avg."));
  optimizer.scatter_moments(ShardedOptimizer::Moment::second, fill("exp_avg_sq."));
  const TrainerState state = read_trainer_state(path);
  optimizer.set_steps(state.optimizer_steps);
  return state;
}

TrainerState read_trainer_state(const std::string& path) {
  const json::object object = read_state_object(path);
  TrainerState state;
  state.step = state_value<int64_t>(object, "step", path);
  state.optimizer_steps = state_value<int64_t>(object, "optimizer_steps", path);
  state.sequences = state_value<int64_t>(object, "sequences", path);
  state.tokens = state_value<int64_t>(object, "tokens", path);
  state.skipped_steps = state_value<int64_t>(object, "skipped_steps", path);
  state.mean_context = state_value<double>(object, "mean_context", path);
  state.data_fingerprint = state_value<std::string>(object, "data_fingerprint", path);
  return state;
}

std::string resolve_checkpoint(const std::string& path) {
  SMELT_CHECK(IoError, fs::is_directory(path), "checkpoint '" << path << "' is not a folder");
  if (fs::exists(path + "/config.json")) return path;
  const std::vector<Checkpoint> all = RunFolder(path).list_checkpoints();
  SMELT_CHECK(IoError, !all.empty(),
              "'" << path << "' holds neither config.json nor checkpoints/step-N");
  for (size_t i = all.size(); i-- > 0;) {
    if (is_complete(all[i].path)) return all[i].path;
  }
  SMELT_CHECK(IoError, false,
              "'" << path << "' has no whole checkpoint; " << why_incomplete(all.back().path));
  return {};
}

}  // namespace smelt
