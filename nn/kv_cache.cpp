#include "nn/kv_cache.h"

namespace smelt {

KvCache::KvCache(const ExecutionPlan& plan, int64_t batch, int64_t capacity, int64_t num_kv_heads,
                 int64_t head_dim, TensorOptions options)
    : capacity_(capacity), lengths_(size_t(batch), 0) {
  for (int64_t slot = 0; slot < plan.kv_slots(); ++slot) {
    keys_.push_back(Tensor::empty({batch, capacity, num_kv_heads, head_dim}, options));
    values_.push_back(Tensor::empty({batch, capacity, num_kv_heads, head_dim}, options));
  }
}

int64_t KvCache::bytes_per_token() const {
  const Tensor& k = keys_[0];
  return 2 * slots() * k.dim(2) * k.dim(3) * size_of(k.dtype());
}

void KvCache::write(int64_t slot, const Tensor& k, const Tensor& v) const {
  SMELT_CHECK(ShapeError, 0 <= slot && slot < slots(),
              "KvCache: slot " << slot << " must be in [0, " << slots() << ")");
  check_rank("KvCache", "k", k, 4);
  const int64_t n = k.dim(1);
  for (const auto& [name, x] : {std::pair<const char*, const Tensor&>("k", k), {"v", v}})
    check_shape("KvCache", name, x, {batch(), n, keys_[0].dim(2), keys_[0].dim(3)});
  for (int64_t b = 0; b < batch(); ++b) {
    const int64_t at = lengths_[size_t(b)];
    SMELT_CHECK(ShapeError, at + n <= capacity_,
                "KvCache: " << at << " + " << n << " positions pass the capacity of " << capacity_);
    keys_[size_t(slot)].slice(0, b, b + 1).slice(1, at, at + n).copy_(k.slice(0, b, b + 1));
    values_[size_t(slot)].slice(0, b, b + 1).slice(1, at, at + n).copy_(v.slice(0, b, b + 1));
  }
}

void KvCache::advance(const std::vector<int64_t>& counts) {
  SMELT_CHECK(ShapeError, counts.size() == lengths_.size(),
              "KvCache: " << counts.size() << " counts for a batch of " << batch());
  for (size_t b = 0; b < counts.size(); ++b) {
    SMELT_CHECK(ShapeError, counts[b] >= 0 && lengths_[b] + counts[b] <= capacity_,
                "KvCache: length " << lengths_[b] << " + " << counts[b]
                                   << " is outside the capacity of " << capacity_);
  }
  for (size_t b = 0; b < counts.size(); ++b) lengths_[b] += counts[b];
}

}  // namespace smelt
