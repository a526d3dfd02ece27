#include "apps/eval/curves.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <boost/json.hpp>

#include "apps/common/metrics.h"
#include "apps/common/run_folder.h"

namespace smelt {
namespace {

namespace json = boost::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double number(const json::object& line, const char* key) {
  const json::value* value = line.if_contains(key);
  return value != nullptr && value->is_number() ? value->to_number<double>() : kNone;
}

/// valid.overall.nats_per_token, or NaN.
double validation_loss(const json::object& line) {
  const json::value* valid = line.if_contains("valid");
  if (valid == nullptr || !valid->is_object()) return kNone;
  const json::value* all = valid->as_object().if_contains("overall");
  return all != nullptr && all->is_object() ? number(all->as_object(), "nats_per_token") : kNone;
}

}  // namespace

std::vector<double> smoothed(const std::vector<double>& values, size_t reach) {
  std::vector<double> means;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t first = i > reach ? i - reach : 0;
    const size_t last = std::min(i + reach + 1, values.size());
    double sum = 0, count = 0;
    for (size_t k = first; k < last; ++k) {
      if (!std::isfinite(values[k])) continue;
      sum += values[k];
      count += 1;
    }
    means.push_back(count > 0 ? sum / count : kNone);
  }
  return means;
}

Figure loss_curves(const std::vector<CurveSource>& runs) {
  Figure figure;
  figure.title = "Loss over training";
  figure.x_label = "training tokens";
  figure.y_label = "nats per token";
  for (const CurveSource& run : runs) {
    Series training{run.name + ", training", {}, {}, false};
    Series validation{run.name + ", validation", {}, {}, true};
    for (const json::object& line : read_jsonl(RunFolder(run.run_folder).metrics())) {
      if (number(line, "branch_tokens") > 0) continue;
      const double tokens = number(line, "tokens"), loss = number(line, "loss");
      const double valid = validation_loss(line);
      if (std::isfinite(loss)) {
        training.x.push_back(tokens);
        training.y.push_back(loss);
      }
      if (std::isfinite(valid)) {
        validation.x.push_back(tokens);
        validation.y.push_back(valid);
      }
    }
    training.y = smoothed(training.y, training.y.size() / 100);
    figure.series.push_back(std::move(training));
    figure.series.push_back(std::move(validation));
  }
  return figure;
}

}  // namespace smelt
