#include "apps/pretrain/run_log.h"

#include <cstdio>
#include <filesystem>

#include "tensor/error.h"

namespace smelt {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr size_t kMostPoints = 4000;  // of a curve; more would only slow the drawing down

int64_t branch_of(const json::object& line) {
  const json::value* const branch = line.if_contains("branch_tokens");
  return branch == nullptr ? 0 : branch->as_int64();
}

/// Adds the numbers of `object` as PREFIX/KEY.
void add_numbers(const std::string& prefix, const json::object& object,
                 std::vector<std::pair<std::string, double>>& scalars) {
  for (const auto& [key, value] : object) {
    if (key == "step" || key == "branch_tokens" || !value.is_number()) continue;
    scalars.emplace_back(prefix + "/" + std::string(key), value.to_number<double>());
  }
}

std::vector<std::pair<std::string, double>> scalars_of(const json::object& line) {
  std::vector<std::pair<std::string, double>> scalars;
  if (const json::value* valid = line.if_contains("valid")) {
    for (const auto& [domain, losses] : valid->as_object())
      add_numbers("valid/" + std::string(domain), losses.as_object(), scalars);
    return scalars;
  }
  add_numbers("train", line, scalars);
  if (const json::value* loads = line.if_contains("load_max_over_mean")) {
    for (const json::value& load : loads->as_array()) {
      if (!load.at("value").is_number()) continue;
      scalars.emplace_back("load_max_over_mean/layer " + json::serialize(load.at("layer")) +
                               " visit " + json::serialize(load.at("visit")),
                           load.at("value").to_number<double>());
    }
  }
  return scalars;
}

/// Every n-th point, so that at most kMostPoints are left.
Series thinned(const Series& series) {
  Series result{.name = series.name, .x = {}, .y = {}, .points = series.points};
  const size_t stride = series.x.size() / kMostPoints + 1;
  for (size_t i = (series.x.size() - 1) % stride; i < series.x.size(); i += stride) {
    result.x.push_back(series.x[i]);
    result.y.push_back(series.y[i]);
  }
  return result;
}

}  // namespace

RunLog::RunLog(const RunFolder& folder, bool tensorboard, const std::string& config)
    : folder_(folder), tensorboard_(tensorboard), config_(config), metrics_(folder.metrics()) {
  for (const json::object& line : read_jsonl(folder.metrics())) remember(line);
}

EventFile& RunLog::events_of(int64_t branch_tokens) {
  std::unique_ptr<EventFile>& events = events_[branch_tokens];
  if (!events) {
    const std::string name =
        branch_tokens == 0 ? "trunk" : "branch-" + std::to_string(branch_tokens);
    events = std::make_unique<EventFile>(folder_.tensorboard() + "/" + name);
    events->text(0, "config", "```ini\n" + config_ + "```\n");
  }
  return *events;
}

void RunLog::remember(const json::object& line) {
  const auto add = [&](const std::string& name, const json::value& loss) {
    if (!loss.is_number()) return;
    Series& series = losses_[name];
    series.name = name;
    series.x.push_back(line.at("tokens").to_number<double>());
    series.y.push_back(loss.to_number<double>());
  };
  const int64_t branch = branch_of(line);
  const std::string suffix =
      branch == 0 ? std::string() : " (branch to " + std::to_string(branch) + ")";
  if (const json::value* loss = line.if_contains("loss")) add("train" + suffix, *loss);
  if (const json::value* valid = line.if_contains("valid")) {
    for (const auto& [domain, losses] : valid->as_object())
      add("valid " + std::string(domain) + suffix, losses.at("nats_per_token"));
  }
}

void RunLog::write(const json::object& line) {
  metrics_.write(line);
  remember(line);
  branch_ = branch_of(line);
  if (tensorboard_) events_of(branch_).scalars(line.at("step").as_int64(), scalars_of(line));
}

void RunLog::draw(int64_t step) {
  if (!can_draw_ || losses_.empty()) return;
  Figure figure{.title = "losses of " + fs::path(folder_.path()).filename().string(),
                .x_label = "tokens",
                .y_label = "nats per token",
                .series = {}};
  for (const auto& [name, series] : losses_) figure.series.push_back(thinned(series));
  const std::string picture = folder_.path() + "/.loss.png";
  try {
    can_draw_ = draw_figure(figure, folder_.path() + "/loss.svg");
    if (can_draw_ && tensorboard_) {
      draw_figure(figure, picture);
      events_of(branch_).image(step, "losses", read_text_file(picture));
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "no more figures in this run: %s\n", error.what());
    can_draw_ = false;
  }
  std::error_code ignored;
  fs::remove(picture, ignored);
  fs::remove(fs::path(picture).replace_extension(".tsv"), ignored);
}

}  // namespace smelt
