#include "moe/sharded_optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "dist/collectives.h"
#include "tensor/elementwise.h"

namespace smelt {

/// The parameters that one group of ranks shares.
struct ShardedOptimizer::Partition {
  dist::Group group;
  dist::BucketLayout layout;
  std::vector<Parameter*> parameters;
  std::vector<Tensor> masters;  // views of `values`, like the parameters
  Tensor values;                // [layout.numel] f32 (f64)
  Tensor compute;  // bf16 copy; undefined when the model computes in the masters' dtype
  Tensor grads;    // [layout.numel] f32 (f64)
  std::unique_ptr<dist::GradientReducer> reducer;

  /// This rank's part of parameter p as ranges of the flat buffer, with the span's index in AdamW.
  struct Owned {
    size_t parameter;
    dist::Range range;
    size_t span;
  };
  std::vector<Owned> owned;

  Tensor view(const Tensor& flat, size_t p) const {
    const dist::Range& range = layout.parameters[p];
    return flat.slice(0, range.begin, range.end).view(parameters[p]->value.shape());
  }
  size_t index_of(const Parameter& parameter) const {
    const auto found = std::find(parameters.begin(), parameters.end(), &parameter);
    SMELT_CHECK(Error, found != parameters.end(),
                "optimizer: parameter '" << parameter.name << "' is not of this optimizer");
    return size_t(found - parameters.begin());
  }
  int64_t bucket_begin(size_t p) const { return layout.buckets[size_t(layout.bucket_of[p])].begin; }
  /// Parameter p in a buffer of its bucket alone, and this rank's part of it.
  Tensor view_in_bucket(const Tensor& flat, size_t p) const {
    const dist::Range& range = layout.parameters[p];
    return flat.slice(0, range.begin - bucket_begin(p), range.end - bucket_begin(p))
        .view(parameters[p]->value.shape());
  }
  Tensor owned_in_bucket(const Tensor& flat, const Owned& part) const {
    const int64_t begin = bucket_begin(part.parameter);
    return flat.slice(0, part.range.begin - begin, part.range.end - begin);
  }
};

ShardedOptimizer::ShardedOptimizer(ParameterStore& store, const dist::World& world,
                                   const AdamWConfig& config, bool overlap, int64_t bucket_bytes)
    : store_(store), world_(world) {
  const DType wide = accumulation_dtype(store.dtype());
  std::vector<OptimizerSpan> spans;
  for (const bool expert : {false, true}) {
    auto part = std::make_unique<Partition>();
    part->group = expert ? world.expert_data() : world.world();
    std::vector<int64_t> sizes;
    std::vector<std::string> names;
    for (Parameter* parameter : store.all()) {
      if (parameter->expert != expert) continue;
      part->parameters.push_back(parameter);
      sizes.push_back(parameter->value.data().numel());
      names.push_back(parameter->name);
    }
    part->layout = dist::plan_buckets(sizes, part->group.size(), bucket_bytes, wide);
    const Shape flat = {part->layout.numel};
    part->values = Tensor::zeros(flat, {wide, store.device()});
    part->grads = Tensor::zeros(flat, {wide, store.device()});
    if (store.dtype() != wide) part->compute = Tensor::zeros(flat, {store.dtype(), store.device()});
    part->reducer = std::make_unique<dist::GradientReducer>(
        part->grads, part->group, part->layout,
        dist::GradientReducerOptions{.overlap = overlap, .names = names});
    for (size_t p = 0; p < part->parameters.size(); ++p) {
      const Variable& value = part->parameters[p]->value;
      part->masters.push_back(part->view(part->values, p));
      part->masters[p].copy_(value.data());
      value.set_data(part->compute.defined() ? part->view(part->compute, p) : part->masters[p]);
      value.set_grad(part->view(part->grads, p));
      value.set_ready_hook([this, reducer = part->reducer.get(), p] {
        if (last_backward_) reducer->ready(int64_t(p));
      });
    }
    // Intersect the owned part of each bucket with the parameters in it.
    for (const dist::Range& mine : part->reducer->owned_ranges()) {
      for (size_t p = 0; p < part->parameters.size(); ++p) {
        const dist::Range& whole = part->layout.parameters[p];
        const dist::Range range{std::max(mine.begin, whole.begin), std::min(mine.end, whole.end)};
        if (range.begin >= range.end) continue;
        part->owned.push_back({p, range, spans.size()});
        spans.push_back({part->values.slice(0, range.begin, range.end),
                         part->grads.slice(0, range.begin, range.end), part->parameters[p]->decay});
      }
    }
    partitions_.push_back(std::move(part));
  }
  adamw_ = std::make_unique<AdamW>(std::move(spans), config);
  refresh_from_masters();
}

ShardedOptimizer::~ShardedOptimizer() {
  for (Parameter* parameter : store_.all()) parameter->value.set_ready_hook(nullptr);
}

void ShardedOptimizer::zero_grad() {
  last_backward_ = false;
  for (const auto& part : partitions_) part->grads.zero_();
}

double ShardedOptimizer::reduce_gradients() {
  for (const auto& part : partitions_) part->reducer->finish();
  last_backward_ = false;
  return std::sqrt(dist::all_reduce_sum(adamw_->grad_sum_squares(), world_.world()));
}

void ShardedOptimizer::step(double lr, double grad_scale) {
  adamw_->step(lr, grad_scale);
  for (const auto& part : partitions_)
    dist::gather_parameters_(part->values, part->layout, part->group);
  refresh_from_masters();
}

void ShardedOptimizer::refresh_from_masters() {
  for (const auto& part : partitions_) {
    if (part->compute.defined()) part->compute.copy_(part->values);
  }
}

std::vector<int> ShardedOptimizer::reductions() const {
  std::vector<int> result;
  std::vector<size_t> next(partitions_.size(), 0);
  for (const Parameter* parameter : store_.all()) {
    const size_t k = parameter->expert ? 1 : 0;
    result.push_back(partitions_[k]->reducer->reductions()[next[k]++]);
  }
  return result;
}

const Tensor& ShardedOptimizer::master(const Parameter& parameter) const {
  const Partition& part = *partitions_[parameter.expert ? 1 : 0];
  return part.masters[part.index_of(parameter)];
}

const Tensor& ShardedOptimizer::moment(Moment which, size_t span) const {
  return which == Moment::first ? adamw_->m(span) : adamw_->v(span);
}

void ShardedOptimizer::scatter_moments(
    Moment which, const std::function<void(const Parameter&, const Tensor&)>& fill) {
  for (const auto& part : partitions_) {
    for (size_t b = 0; b < part->layout.buckets.size(); ++b) {
      const dist::Range& bucket = part->layout.buckets[b];
      const Tensor flat = Tensor::zeros({bucket.size()}, part->values.options());
      for (size_t p = 0; p < part->parameters.size(); ++p) {
        if (part->layout.bucket_of[p] == int64_t(b))
          fill(*part->parameters[p], part->view_in_bucket(flat, p));
      }
      for (const Partition::Owned& owned : part->owned) {
        if (part->layout.bucket_of[owned.parameter] == int64_t(b))
          moment(which, owned.span).copy_(part->owned_in_bucket(flat, owned));
      }
    }
  }
}

struct ShardedOptimizer::MomentGather::Kept {
  struct Bucket {
    int64_t number = -1;
    Tensor flat;
  };
  std::array<std::array<Bucket, 2>, 2> buckets;  // of each partition, the newest first
};

ShardedOptimizer::MomentGather::MomentGather(const ShardedOptimizer& optimizer, Moment which)
    : optimizer_(optimizer), which_(which), kept_(std::make_unique<Kept>()) {}
ShardedOptimizer::MomentGather::~MomentGather() = default;

Tensor ShardedOptimizer::MomentGather::of(const Parameter& parameter) {
  const Partition& part = *optimizer_.partitions_[parameter.expert ? 1 : 0];
  const size_t p = part.index_of(parameter);
  if (part.group.size() == 1) {
    // What no other rank shares is whole here.
    for (const Partition::Owned& owned : part.owned) {
      if (owned.parameter == p)
        return optimizer_.moment(which_, owned.span).view(parameter.value.shape());
    }
    return Tensor::zeros(parameter.value.shape(), part.values.options());  // empty
  }
  auto& [newest, older] = kept_->buckets[parameter.expert ? 1 : 0];
  const int64_t number = part.layout.bucket_of[p];
  if (newest.number != number) std::swap(newest, older);
  if (newest.number != number) {
    newest = {};  // its memory goes before more is taken
    const dist::Range& bucket = part.layout.buckets[size_t(number)];
    const Tensor flat = Tensor::zeros({bucket.size()}, part.values.options());
    for (const Partition::Owned& owned : part.owned) {
      if (part.layout.bucket_of[owned.parameter] == number)
        part.owned_in_bucket(flat, owned).copy_(optimizer_.moment(which_, owned.span));
    }
    dist::gather_parameters_(flat,
                             {.numel = bucket.size(),
                              .group_size = part.group.size(),
                              .parameters = {},
                              .buckets = {{0, bucket.size()}},
                              .bucket_of = {}},
                             part.group);
    newest = {number, flat};
  }
  return part.view_in_bucket(newest.flat, p);
}

}  // namespace smelt
