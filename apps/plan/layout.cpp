// smelt-plan layout: memory and communication of each rank, and the smallest layout that fits.
#include <cstdio>
#include <iostream>

#include "apps/common/metrics.h"
#include "apps/common/progress.h"
#include "apps/plan/common.h"
#include "moe/layout_plan.h"

namespace smelt {
namespace {

namespace json = boost::json;

TrainingSizes training_sizes(const TrainConfig& train) {
  return {.seq_len = train.seq_len,
          .micro_batch = train.micro_batch,
          .global_batch = train.global_batch,
          .dtype = train.dtype,
          .recompute = train.recompute};
}

/// 12.3 GB: bytes in powers of ten, as memories of devices are sold.
std::string gigabytes(double bytes) {
  return bytes < 1e8 ? formatted("%.2f MB", bytes / 1e6) : formatted("%.2f GB", bytes / 1e9);
}

/// A table with a column for each plan.
class PlanTable {
 public:
  void row(const std::string& label, const std::vector<std::string>& cells) {
    char head[40];
    std::snprintf(head, sizeof head, "%-34s", label.c_str());
    text_ += head;
    for (const std::string& cell : cells) {
      char padded[40];
      std::snprintf(padded, sizeof padded, "%20s", cell.c_str());
      text_ += padded;
    }
    text_.erase(text_.find_last_not_of(' ') + 1);
    text_ += "\n";
  }
  template <typename Value>
  void rows(const std::string& label, const std::vector<LayoutPlan>& plans, const Value& value) {
    std::vector<std::string> cells;
    for (const LayoutPlan& plan : plans) cells.push_back(value(plan));
    row(label, cells);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string plan_table(const std::vector<LayoutPlan>& plans, const std::vector<std::string>& names,
                       double bandwidth) {
  PlanTable table;
  table.row("", names);
  const auto number = [&](const char* label, auto get) {
    table.rows(label, plans, [&](const LayoutPlan& p) { return std::to_string(get(p)); });
  };
  const auto bytes = [&](const std::string& label, auto get) {
    table.rows(label, plans, [&](const LayoutPlan& p) { return gigabytes(double(get(p))); });
  };
  number("ranks", [](const LayoutPlan& p) { return p.layout.ranks; });
  number("expert_parallel", [](const LayoutPlan& p) { return p.layout.expert_parallel; });
  number("micro_batch", [](const LayoutPlan& p) { return p.sizes.micro_batch; });
  number("passes per step", [](const LayoutPlan& p) {
    return p.sizes.global_batch / (p.layout.ranks * p.sizes.micro_batch);
  });
  table.rows("recompute", plans,
             [](const LayoutPlan& p) { return std::string(to_text(p.sizes.recompute)); });
  table.row("memory of the fullest rank", {});
  bytes("  parameters (f32 masters)", [](const LayoutPlan& p) { return p.memory.masters; });
  bytes("  parameters (compute dtype)", [](const LayoutPlan& p) { return p.memory.compute; });
  bytes("  gradients", [](const LayoutPlan& p) { return p.memory.gradients; });
  bytes("  optimizer (sharded)", [](const LayoutPlan& p) { return p.memory.moments; });
  bytes("  activations kept", [](const LayoutPlan& p) { return p.memory.activations_kept; });
  bytes("  activations, highest", [](const LayoutPlan& p) { return p.memory.activations_peak; });
  bytes("  inputs, tables, reductions", [](const LayoutPlan& p) {
    return p.memory.inputs + p.memory.tables + p.memory.reduction_buffers;
  });
  bytes("  while saving a checkpoint", [](const LayoutPlan& p) { return p.memory.saving; });
  bytes("  highest of all", [](const LayoutPlan& p) { return p.memory.total(); });
  table.row("sent by a rank in an optimizer step", {});
  bytes("  all-to-all", [](const LayoutPlan& p) { return p.communication.all_to_all; });
  bytes("  reduce-scatter of gradients",
        [](const LayoutPlan& p) { return p.communication.reduce_scatter; });
  bytes("  all-gather of parameters",
        [](const LayoutPlan& p) { return p.communication.all_gather; });
  table.rows("  time at " + gigabytes(bandwidth) + "/s", plans,
             [](const LayoutPlan& p) { return human_duration(p.communication_seconds); });
  return table.text();
}

json::object plan_json(const LayoutPlan& p) {
  const LayoutMemory& m = p.memory;
  return {{"ranks", p.layout.ranks},
          {"expert_parallel", p.layout.expert_parallel},
          {"micro_batch", p.sizes.micro_batch},
          {"recompute", to_text(p.sizes.recompute)},
          {"dense_parameters", p.dense_parameters},
          {"expert_parameters", p.expert_parameters},
          {"bytes",
           {{"masters", m.masters},
            {"compute", m.compute},
            {"gradients", m.gradients},
            {"moments", m.moments},
            {"tables", m.tables},
            {"inputs", m.inputs},
            {"activations_kept", m.activations_kept},
            {"activations_peak", m.activations_peak},
            {"reduction_buffers", m.reduction_buffers},
            {"saving", m.saving},
            {"total", m.total()}}},
          {"sent_bytes",
           {{"all_to_all", p.communication.all_to_all},
            {"reduce_scatter", p.communication.reduce_scatter},
            {"all_gather", p.communication.all_gather}}},
          {"communication_seconds", p.communication_seconds}};
}

}  // namespace

OptionTable layout_options() {
  OptionTable table(
      "plan layout",
      "Memory and communication of each rank: for the layout given by --ranks and "
      "--expert-parallel, and the smallest one that fits --device-memory. Reads [model], "
      "[loop] and the batches, dtype and recompute of [train].");
  table.with_config({"model", "loop", "train", "dist"});
  table.integer("ranks", 0, 0, 1 << 20, "ranks", "number of ranks; 0: only look for the smallest");
  table.integer("expert-parallel", 0, 0, 65536, "ranks",
                "ranks that share the experts; 0: dist.expert_parallel");
  table.number("device-memory", 141, 0.001, 1e9, "GB",
               "memory of one rank's device, 1 GB = 1e9 bytes");
  table.number("bandwidth", 50, 0.001, 1e9, "GB/s",
               "what one rank sends per second while it receives as much");
  table.integer("max-ranks", 1024, 1, 1 << 20, "ranks",
                "look for the smallest layout among powers of two up to this");
  return table;
}

int run_layout(const Arguments& arguments) {
  const RunConfig config = valid_config(arguments).config;
  const double memory = 1e9 * arguments.number("device-memory"),
               bandwidth = 1e9 * arguments.number("bandwidth");
  const int64_t ranks = arguments.integer("ranks");
  SMELT_CHECK(ConfigError, ranks > 0 || !arguments.given("expert-parallel"),
              "--expert-parallel is given without --ranks");

  json::object document{{"device_memory", memory}, {"bandwidth", bandwidth}, {"layout", nullptr}};
  std::vector<LayoutPlan> plans;
  std::vector<std::string> names;
  if (ranks > 0) {
    int64_t experts = arguments.integer("expert-parallel");
    if (experts == 0) experts = config.dist.expert_parallel;
    plans.push_back(
        plan_layout(config.model, training_sizes(config.train), {ranks, experts}, bandwidth));
    const bool fits = double(plans.back().memory.total()) <= memory;
    names.push_back(fits ? "this layout" : "this: does not fit");
    json::object given = plan_json(plans.back());
    given["fits"] = fits;
    document["layout"] = given;
  }
  std::string note;
  try {
    plans.push_back(smallest_layout(config.model, training_sizes(config.train),
                                    powers_of_two(arguments.integer("max-ranks")), int64_t(memory),
                                    bandwidth));
    names.push_back("smallest that fits");
    document["smallest"] = plan_json(plans.back());
  } catch (const ConfigError& error) {
    // The layout that was asked for is an answer even where none fits.
    if (ranks == 0) throw;
    document["smallest"] = nullptr;
    note = std::string("\n") + error.what() + "\n";
  }
  print(arguments, plan_table(plans, names, bandwidth) + note);
  if (arguments.json()) std::cout << json_line(document) << "\n";
  return 0;
}

}  // namespace smelt
