#include "apps/eval/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include <boost/json.hpp>

#include "apps/common/budget_json.h"
#include "apps/common/metrics.h"
#include "apps/common/progress.h"

namespace smelt {
namespace {

namespace json = boost::json;

constexpr size_t kLabel = 26;
constexpr size_t kColumn = 24;
constexpr size_t kPerBlock = 3;  // 26 + 3 * 24 = 98 columns

template <typename Number>
json::value or_null(const std::optional<Number>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::object loss_json(const DomainLoss& loss) {
  return {{"nats_per_token", number_or_null(loss.nats_per_token())},
          {"bits_per_byte", number_or_null(loss.bits_per_byte())},
          {"tokens", int64_t(loss.targets)}};
}

/// Residual scale inside the span, as executed.
double span_scale(const ExecutionPlan& plan) {
  for (const ExecutionStep& step : plan.steps())
    if (plan.looped(step.layer)) return step.residual_scale;
  return 1;
}

json::object loop_json(const Evaluation& e) {
  const ExecutionPlan plan(e.model.num_layers, e.model.loop);
  return {{"start", plan.span_begin()},
          {"layers", plan.span_end() - plan.span_begin()},
          {"visits", plan.visits()},
          {"trained_visits", e.trained_visits},
          {"visits_overridden", e.visits_overridden()},
          {"scale", span_scale(plan)},
          {"order", to_text(e.model.loop.order)},
          {"kv", to_text(e.model.loop.kv)}};
}

json::object evaluation_json(const Evaluation& e) {
  json::object domains;
  for (const DomainLoss& loss : e.domains) domains[loss.domain] = loss_json(loss);
  json::array generations;
  for (const Generation& g : e.generations)
    generations.push_back(
        json::object{{"prompt", g.prompt}, {"text", g.text}, {"tokens", g.tokens}});
  return {{"checkpoint", e.checkpoint},
          {"step", or_null(e.step)},
          {"tokens", or_null(e.tokens)},
          {"loop", loop_json(e)},
          {"document_mask", e.document_mask},
          {"seq_len", e.seq_len},
          {"dtype", to_text(e.dtype)},
          {"mean_context", e.mean_context},
          {"flops_per_token", e.budget.flops_per_token},
          {"params_non_embedding", e.budget.params_non_embedding},
          {"params_active", e.budget.params_active},
          {"kv_values_per_token", e.budget.kv_values_per_token},
          {"executed_depth", e.budget.executed_depth},
          {"domains", domains},
          {"overall",
           e.domains.empty() ? json::value(nullptr) : json::value(loss_json(overall(e.domains)))},
          {"router_aux_loss", or_null(e.router_aux)},
          {"tokens_per_second", number_or_null(e.tokens_per_second)},
          {"generations", generations}};
}

/// 12.35 M: four significant digits.
std::string count_text(double value) { return four_digits(value, " "); }

/// The text cut or filled with blanks on its left to a width.
std::string right(std::string text, size_t width) {
  if (text.size() >= width) text = text.substr(text.size() - width + 1);
  return std::string(width - text.size(), ' ') + text;
}

std::string left(std::string text, size_t width) {
  if (text.size() >= width) text.resize(width - 1);
  return text + std::string(width - text.size(), ' ');
}

using Cell = std::function<std::string(const Evaluation&)>;
using Quantity = std::function<double(const Evaluation&)>;

/// Lines of one block of checkpoints.
class Block {
 public:
  Block(const std::vector<Evaluation>& columns, bool with_ratio)
      : columns_(columns), with_ratio_(with_ratio) {}

  void row(const std::string& label, const Cell& cell, const Quantity& ratio = {}) {
    std::string line = left(label, kLabel);
    for (const Evaluation& e : columns_) line += right(cell(e), kColumn);
    if (with_ratio_ && ratio)
      line += right(formatted("x %.3f", ratio(columns_[1]) / ratio(columns_[0])), 12);
    text_ += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  void budget_row(const std::string& label, const Quantity& quantity) {
    row(
        label, [&](const Evaluation& e) { return count_text(quantity(e)); }, quantity);
  }
  const std::string& text() const { return text_; }

 private:
  const std::vector<Evaluation>& columns_;
  bool with_ratio_;
  std::string text_;
};

std::string visits_text(const Evaluation& e) {
  const std::string text = loop_text(e.model);
  if (!e.visits_overridden() || text == "none") return text;
  return text + " (trained x " + std::to_string(e.trained_visits) + ")";
}

std::string loss_text(const DomainLoss& loss) {
  const double bits = loss.bits_per_byte();
  return formatted("%.4f", loss.nats_per_token()) +
         (std::isfinite(bits) ? formatted("%11.4f", bits) : "          -");
}

/// Names of all domains, in the order in which they first occur.
std::vector<std::string> domain_names(const std::vector<Evaluation>& evaluations) {
  std::vector<std::string> names;
  for (const Evaluation& e : evaluations)
    for (const DomainLoss& loss : e.domains)
      if (std::find(names.begin(), names.end(), loss.domain) == names.end())
        names.push_back(loss.domain);
  return names;
}

std::string block_table(const std::vector<Evaluation>& columns, bool with_ratio) {
  Block block(columns, with_ratio);
  const auto optional_count = [](const std::optional<int64_t>& value) {
    return value ? count_text(double(*value)) : std::string("-");
  };
  block.row("", [](const Evaluation& e) { return e.name; });
  block.row("trained steps",
            [](const Evaluation& e) { return e.step ? std::to_string(*e.step) : "-"; });
  block.row("trained tokens", [&](const Evaluation& e) { return optional_count(e.tokens); });
  block.row("training tokens/s", [](const Evaluation& e) {
    return std::isfinite(e.tokens_per_second) ? count_text(e.tokens_per_second) : std::string("-");
  });
  block.row("looped layers x visits", visits_text);
  block.row("executed depth",
            [](const Evaluation& e) { return std::to_string(e.budget.executed_depth); });
  block.budget_row("F  training FLOPs/token",
                   [](const Evaluation& e) { return e.budget.flops_per_token; });
  block.budget_row("N  params w/o embedding",
                   [](const Evaluation& e) { return double(e.budget.params_non_embedding); });
  block.budget_row("KV values/token",
                   [](const Evaluation& e) { return double(e.budget.kv_values_per_token); });
  block.row("mean context", [](const Evaluation& e) { return formatted("%.1f", e.mean_context); });
  const std::vector<std::string> names = domain_names(columns);
  if (names.empty()) return block.text();
  block.row("seq_len, document mask", [](const Evaluation& e) {
    return std::to_string(e.seq_len) + (e.document_mask ? ", on" : ", off");
  });
  block.row("scored tokens",
            [](const Evaluation& e) { return count_text(overall(e.domains).targets); });
  if (columns.front().router_aux)
    block.row("router aux loss",
              [](const Evaluation& e) { return formatted("%.5f", e.router_aux.value_or(0)); });
  block.row("validation loss",
            [](const Evaluation&) { return std::string("nats/token  bits/byte"); });
  for (const std::string& name : names) {
    block.row("  " + name, [&](const Evaluation& e) {
      for (const DomainLoss& loss : e.domains)
        if (loss.domain == name) return loss_text(loss);
      return std::string("-");
    });
  }
  block.row("  overall", [](const Evaluation& e) { return loss_text(overall(e.domains)); });
  return block.text();
}

}  // namespace

json::array evaluations_json(const std::vector<Evaluation>& evaluations) {
  json::array document;
  for (const Evaluation& e : evaluations) document.push_back(evaluation_json(e));
  return document;
}

std::string evaluations_table(const std::vector<Evaluation>& evaluations) {
  std::string text;
  for (size_t first = 0; first < evaluations.size(); first += kPerBlock) {
    const size_t last = std::min(first + kPerBlock, evaluations.size());
    const std::vector<Evaluation> block(evaluations.begin() + std::ptrdiff_t(first),
                                        evaluations.begin() + std::ptrdiff_t(last));
    text += (first > 0 ? "\n" : "") + block_table(block, evaluations.size() == 2);
  }
  return text;
}

}  // namespace smelt
