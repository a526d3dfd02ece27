#include "moe/match.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <tuple>

#include "tensor/error.h"

namespace smelt {
namespace {

double square(double x) { return x * x; }

/// An interval of a budget's ratio to the Baseline.
struct Interval {
  double low = 0, high = std::numeric_limits<double>::infinity();
  bool contains(double x) const { return x >= low && x <= high; }
};

Interval allowed(double target, double tolerance) {
  if (target == 0) return {};
  return {target * (1 - tolerance), target * (1 + tolerance)};
}

/// The interval of x in which offset + slope x, slope > 0, stays within bounds.
Interval solve(double offset, double slope, const Interval& bounds) {
  return {(bounds.low - offset) / slope, (bounds.high - offset) / slope};
}

int64_t up(double x, int64_t multiple) {
  return int64_t(std::ceil(x / double(multiple))) * multiple;
}

auto sizes(const ModelConfig& c) {
  return std::tuple(c.hidden_size, c.expert_hidden_size, c.num_experts, c.head_dim, c.num_kv_heads);
}

bool better(const Match& a, const Match& b) {
  return std::tuple(a.cost, sizes(a.config)) < std::tuple(b.cost, sizes(b.config));
}

class Search {
 public:
  Search(const ModelConfig& baseline, double mean_context, const MatchOptions& options)
      : baseline_(baseline),
        options_(options),
        context_(mean_context),
        reference_(budget_of(baseline, mean_context)),
        plan_(options.num_layers, options.loop),
        flops_(allowed(options.target.flops, options.tolerance.flops)),
        params_(allowed(options.target.params, options.tolerance.params)),
        kv_(allowed(options.target.kv, options.tolerance.kv)) {}

  std::vector<Match> run() {
    ModelConfig c = baseline_;
    c.num_layers = options_.num_layers;
    c.loop = options_.loop;
    const SizeGrid &hidden = grid("hidden_size"), &dims = grid("head_dim");
    for (const int64_t kv_heads : options_.kv_heads) {
      c.num_kv_heads = kv_heads;
      for (c.head_dim = first(dims); c.head_dim <= dims.high; c.head_dim += dims.multiple) {
        c.hidden_size = 1;
        if (!kv_.contains(ratios(c).kv)) continue;
        for (c.hidden_size = first(hidden); c.hidden_size <= hidden.high;
             c.hidden_size += hidden.multiple)
          search_experts(c);
      }
    }
    std::sort(best_.begin(), best_.end(), better);
    return std::move(best_);
  }

 private:
  const SizeGrid& grid(const std::string& name) const {
    const auto found = options_.grids.find(name);
    SMELT_CHECK(ConfigError, found != options_.grids.end(), "match: no grid for " << name);
    const SizeGrid& g = found->second;
    SMELT_CHECK(ConfigError, g.multiple >= 1 && first(g) <= g.high,
                "match: " << name << " has no multiple of " << g.multiple << " from " << g.low
                          << " to " << g.high);
    return g;
  }
  static int64_t first(const SizeGrid& g) {
    return up(double(std::max<int64_t>(g.low, 1)), g.multiple);
  }

  BudgetTriple ratios(const ModelConfig& c) const {
    return budget_ratios(budget_of(c, plan_, context_), reference_);
  }

  /// All num_experts E and expert widths X for the other sizes of c. There
  ///   N = n + E (m + w X)   and   F = f + g E + h X,
  /// so the widths inside the tolerances are an interval for each E.
  void search_experts(ModelConfig c) {
    const auto at = [&](int64_t experts, int64_t width) {
      c.num_experts = experts;
      c.expert_hidden_size = width;
      return ratios(c);
    };
    const BudgetTriple r11 = at(1, 1), r21 = at(2, 1), r12 = at(1, 2);
    const double w = r12.params - r11.params, m = r21.params - r11.params - w;
    const double n = r11.params - m - w;
    const double h = r12.flops - r11.flops, g = r21.flops - r11.flops, f = r11.flops - g - h;

    const SizeGrid &experts = grid("num_experts"), &widths = grid("expert_hidden_size");
    for (int64_t e = first(experts); e <= experts.high; e += experts.multiple) {
      const Interval by_params = solve(n + double(e) * m, double(e) * w, params_);
      const Interval by_flops = solve(f + double(e) * g, h, flops_);
      const double high = std::min({by_params.high, by_flops.high, double(widths.high)});
      // One multiple of slack on each side: the test below decides, not the rounding here.
      const double low = std::max({by_params.low, by_flops.low, double(widths.low)});
      for (int64_t x = std::max(first(widths), up(low, widths.multiple) - widths.multiple);
           double(x) <= high + double(widths.multiple) && x <= widths.high; x += widths.multiple) {
        c.num_experts = e;
        c.expert_hidden_size = x;
        consider(c);
      }
    }
  }

  void consider(const ModelConfig& c) {
    Match match{c, budget_of(c, plan_, context_), {}, 0};
    match.ratio = budget_ratios(match.budget, reference_);
    if (c.top_k > c.num_experts || !flops_.contains(match.ratio.flops) ||
        !params_.contains(match.ratio.params) || !kv_.contains(match.ratio.kv))
      return;
    const auto deviation = [](double ratio, double target, double tolerance) {
      return target == 0 ? 0 : square((ratio / target - 1) / tolerance);
    };
    const BudgetTriple &t = options_.target, &tolerance = options_.tolerance;
    const auto aspect = [](const ModelConfig& x) {
      return double(x.expert_hidden_size) / double(x.hidden_size);
    };
    const double deeper = double(plan_.executed_depth()) / double(baseline_.num_layers);
    const double shape =
        square(std::log(aspect(c) / aspect(baseline_))) +
        square(2 * std::log(double(c.num_kv_heads) / double(baseline_.num_kv_heads))) +
        square(std::log(double(c.num_experts) / (deeper * double(baseline_.num_experts))));
    match.cost = deviation(match.ratio.flops, t.flops, tolerance.flops) +
                 deviation(match.ratio.params, t.params, tolerance.params) +
                 deviation(match.ratio.kv, t.kv, tolerance.kv) + 4 * shape;
    if (best_.size() >= options_.count && !better(match, best_.front())) return;
    // best_ is a heap with its worst in front.
    best_.push_back(std::move(match));
    std::push_heap(best_.begin(), best_.end(), better);
    if (best_.size() > options_.count) {
      std::pop_heap(best_.begin(), best_.end(), better);
      best_.pop_back();
    }
  }

  const ModelConfig& baseline_;
  const MatchOptions& options_;
  double context_;
  Budget reference_;
  ExecutionPlan plan_;
  Interval flops_, params_, kv_;
  std::vector<Match> best_;
};

void check_options(const ModelConfig& baseline, double mean_context, const MatchOptions& options) {
  SMELT_CHECK(ConfigError, mean_context >= 0 && std::isfinite(mean_context),
              "match: a mean context of " << mean_context << " is not a number of keys");
  SMELT_CHECK(ConfigError, options.count >= 1, "match: at least one result must be wanted");
  SMELT_CHECK(ConfigError, !options.kv_heads.empty(), "match: no number of kv heads to try");
  for (const int64_t heads : options.kv_heads)
    SMELT_CHECK(
        ConfigError, heads >= 1 && baseline.num_heads % heads == 0,
        "match: num_kv_heads = " << heads << " does not divide num_heads = " << baseline.num_heads);
  for (const double x : {options.tolerance.flops, options.tolerance.params, options.tolerance.kv})
    SMELT_CHECK(ConfigError, x > 0 && x <= 1,
                "match: a tolerance of " << x << " is outside (0, 1]");
  for (const double x : {options.target.flops, options.target.params, options.target.kv})
    SMELT_CHECK(ConfigError, x >= 0 && std::isfinite(x),
                "match: a target ratio of " << x << " is below 0");
}

}  // namespace

BudgetTriple budget_ratios(const Budget& budget, const Budget& reference) {
  return {budget.flops_per_token / reference.flops_per_token,
          double(budget.params_non_embedding) / double(reference.params_non_embedding),
          double(budget.kv_values_per_token) / double(reference.kv_values_per_token)};
}

MatchOptions default_match(const ModelConfig& baseline, const MatchMultiples& multiples) {
  MatchOptions options;
  options.num_layers = baseline.num_layers;
  options.loop = baseline.loop;
  int64_t experts = multiples.num_experts;
  if (experts == 0) experts = baseline.num_experts < 16 ? 1 : 8;
  options.grids = {
      {"hidden_size", {multiples.hidden_size, 2 * baseline.hidden_size, multiples.hidden_size}},
      {"expert_hidden_size",
       {multiples.expert_hidden_size, 2 * baseline.expert_hidden_size,
        multiples.expert_hidden_size}},
      {"num_experts", {baseline.top_k, 4 * baseline.num_experts, experts}},
      {"head_dim", {multiples.head_dim, 2 * baseline.head_dim, multiples.head_dim}}};
  for (int64_t heads = 1; heads <= baseline.num_heads; ++heads)
    if (baseline.num_heads % heads == 0) options.kv_heads.push_back(heads);
  return options;
}

LoopConfig span_of(int64_t num_layers, double fraction, int64_t visits) {
  SMELT_CHECK(ConfigError, fraction >= 0 && fraction <= 1,
              "a span of " << fraction << " of the layers is outside 0 to 1");
  SMELT_CHECK(ConfigError, visits >= 1, visits << " visits; at least 1 is needed");
  const auto layers = int64_t(std::floor(fraction * double(num_layers) + 0.5));
  if (layers == 0 || visits == 1) return {};
  LoopConfig loop;
  loop.layers = layers;
  loop.visits = visits;
  return loop;
}

std::vector<Match> match_budgets(const ModelConfig& baseline, double mean_context,
                                 const MatchOptions& options) {
  check_options(baseline, mean_context, options);
  std::vector<Match> matches = Search(baseline, mean_context, options).run();
  if (!matches.empty()) return matches;

  std::ostringstream text;
  text << "no model on the grid is within " << 100 * options.tolerance.flops
       << " % of the wanted F, " << 100 * options.tolerance.params << " % of N and "
       << 100 * options.tolerance.kv << " % of KV";
  MatchOptions wide = options;
  for (const double factor : {2.0, 4.0, 8.0, 16.0, 32.0}) {
    const auto widened = [&](double x) { return std::min(1.0, factor * x); };
    wide.tolerance = {widened(options.tolerance.flops), widened(options.tolerance.params),
                      widened(options.tolerance.kv)};
    wide.count = 1;
    matches = Search(baseline, mean_context, wide).run();
    if (matches.empty()) continue;
    const BudgetTriple& r = matches.front().ratio;
    text.precision(4);
    text << "; the nearest found has F x " << r.flops << ", N x " << r.params << ", KV x " << r.kv;
    break;
  }
  throw ConfigError(text.str() +
                    "; allow a wider tolerance or smaller multiples, or free a budget");
}

}  // namespace smelt
