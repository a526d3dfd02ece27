#include "moe/balance.h"

#include <algorithm>
#include <numeric>

#include "autograd/routing.h"
#include "dist/collectives.h"
#include "tensor/elementwise.h"

namespace smelt {

BalanceTerms balance_terms(const Routing& routing, const std::vector<int64_t>& counts,
                           int64_t batch, double share, const BalanceConfig& config,
                           const StepTotals& totals, const dist::Group& world) {
  const int64_t tokens = routing.probs.dim(0), E = routing.probs.dim(1), K = routing.indices.dim(1);
  BalanceTerms terms;
  if (config.aux_scope == AuxScope::sequence) {
    // Per sequence E * sum_i (counts_i / (K S)) * (sum_t p_ti / S); the mean over all sequences.
    if (tokens > 0) {
      const double seq_len = double(tokens) / double(batch);
      const Tensor load =
          scale(expert_counts(routing.indices, E, batch), double(E) / (double(K) * seq_len));
      terms.aux = segment_dot(routing.probs, load, share / (seq_len * totals.sequences));
    }
  } else {
    Tensor load = Tensor::empty({1, E}, {DType::f64, {}});
    std::copy(counts.begin(), counts.end(), load.data<double>());
    dist::all_reduce_sum_(load, world);
    const double slots = sum(load).item();
    if (slots > 0) {
      const double pass_tokens = slots / double(K);
      terms.aux = segment_dot(routing.probs, scale(load, double(E) / slots),
                              share / (pass_tokens * totals.passes));
    }
  }
  if (!terms.aux.defined()) terms.aux = Variable(Tensor::zeros({1}, {DType::f64, {}}));
  terms.z = router_z_loss(routing.logits, share / totals.tokens);
  return terms;
}

void RouterSums::add(const Routing& routing) {
  const size_t experts = probs_.size();
  const auto probs = routing.probs.data().to(DType::f64).to_vector<double>();
  for (size_t i = 0; i < probs.size(); ++i) probs_[i % experts] += probs[i];
  for (const int32_t e : routing.indices.to_vector<int32_t>()) choices_[size_t(e)] += 1;
  rows_ += double(routing.probs.dim(0));
}

void RouterSums::reduce(const dist::Group& world) {
  std::vector<double> flat = choices_;
  flat.insert(flat.end(), probs_.begin(), probs_.end());
  flat.push_back(rows_);
  const Tensor sums = Tensor::from(flat);
  dist::all_reduce_sum_(sums, world);
  const double* at = sums.data<double>();
  std::copy(at, at + choices_.size(), choices_.begin());
  std::copy(at + choices_.size(), at + 2 * choices_.size(), probs_.begin());
  rows_ = at[2 * choices_.size()];
}

double RouterSums::aux_loss() const {
  if (rows_ == 0) return 0;
  double total = 0;
  for (size_t e = 0; e < probs_.size(); ++e) total += choices_[e] / rows_ * probs_[e] / rows_;
  return double(probs_.size()) * total;
}

LoadStatistics::LoadStatistics(int64_t steps, int64_t num_experts)
    : counts_(size_t(steps), std::vector<double>(size_t(num_experts), 0.0)) {}

void LoadStatistics::add(int64_t step, const std::vector<int64_t>& tokens_per_expert) {
  if (recomputing()) return;
  std::vector<double>& sum = counts_[size_t(step)];
  for (size_t e = 0; e < sum.size(); ++e) sum[e] += double(tokens_per_expert[e]);
}

void LoadStatistics::reduce(const dist::Group& world) {
  if (counts_.empty() || world.size() == 1) return;
  std::vector<double> flat;
  for (const auto& step : counts_) flat.insert(flat.end(), step.begin(), step.end());
  const Tensor sums = Tensor::from(flat);
  dist::all_reduce_sum_(sums, world);
  const double* at = sums.data<double>();
  for (auto& step : counts_) {
    std::copy(at, at + step.size(), step.begin());
    at += step.size();
  }
}

void LoadStatistics::clear() {
  for (auto& step : counts_) std::fill(step.begin(), step.end(), 0.0);
}

double LoadStatistics::max_over_mean(int64_t step) const {
  const std::vector<double>& c = counts(step);
  const double total = std::accumulate(c.begin(), c.end(), 0.0);
  return total > 0 ? *std::max_element(c.begin(), c.end()) * double(c.size()) / total : 0.0;
}

void update_bias(const Tensor& bias, const std::vector<double>& counts, double rate) {
  check_shape("update_bias", "bias", bias, {int64_t(counts.size())});
  const double mean = std::accumulate(counts.begin(), counts.end(), 0.0) / double(counts.size());
  auto values = bias.to(DType::f64).to_vector<double>();
  for (size_t e = 0; e < counts.size(); ++e) {
    values[e] += rate * double((counts[e] < mean) - (counts[e] > mean));
  }
  bias.copy_(Tensor::from(values));
}

}  // namespace smelt
