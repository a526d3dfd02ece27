#include "apps/pretrain/summary.h"

#include <cmath>
#include <cstdio>

#include "apps/common/budget_json.h"
#include "apps/common/progress.h"
#include "moe/layout_plan.h"

namespace smelt {
namespace {

using Long = long long;

/// A line of the form "name    text".
template <typename... Values>
std::string line(const char* name, const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof text, format, values...);
  std::string result(name);
  result.resize(10, ' ');
  return result + text + "\n";
}

std::string model_lines(const ModelConfig& c, const Budget& b) {
  return line("model",
              "%s: %lld layers, %lld executed (loop: %s), hidden %lld, heads %lld/%lld of %lld",
              arch_name(c), Long(c.num_layers), Long(b.executed_depth), loop_text(c).c_str(),
              Long(c.hidden_size), Long(c.num_heads), Long(c.num_kv_heads), Long(c.head_dim)) +
         line("", "%lld experts of width %lld, top-%lld; vocabulary %lld", Long(c.num_experts),
              Long(c.expert_hidden_size), Long(c.top_k), Long(c.vocab_size)) +
         line("", "%s parameters, %s without embedding and head, %s active",
              human_count(double(b.params_total)).c_str(),
              human_count(double(b.params_non_embedding)).c_str(),
              human_count(double(b.params_active)).c_str());
}

}  // namespace

std::string start_summary(const RunConfig& config, const dist::World& world, int threads,
                          const BlendedDataset& data, int64_t first_step, double matrix_rate) {
  const ModelConfig& c = config.model;
  const std::vector<DomainInfo>& domains = data.domains();
  const double context = data.mean_context();
  const Budget budget = budget_of(c, context);
  const Budget control = budget_of(control_of(c), context);
  const int ranks = world.world().size(), experts = world.expert_parallel().size();
  const LayoutPlan layout =
      plan_layout(c,
                  {config.train.seq_len, config.train.micro_batch, config.train.global_batch,
                   config.train.dtype, config.train.recompute},
                  {ranks, experts}, 1e9);
  std::string text = model_lines(c, budget);
  text +=
      line("budget", "F %.4g FLOPs per token at a mean context of %.1f, KV %lld values, S %.1f %%",
           budget.flops_per_token, context, Long(budget.kv_values_per_token),
           100 * sparsity(budget, control));
  text += line(
      "layout", "%d rank%s = %d data x %d expert parallel, %d thread%s each, %s; about %s per rank",
      ranks, ranks == 1 ? "" : "s", ranks / experts, experts, threads, threads == 1 ? "" : "s",
      to_text(config.train.dtype), human_bytes(double(layout.memory.total())).c_str());
  for (const DomainInfo& d : domains)
    text += line(&d == domains.data() ? "data" : "",
                 "%s: %s tokens, %lld windows, share %.0f %%, %lld tokens at the end unused",
                 d.name.c_str(), human_count(double(d.tokens)).c_str(), Long(d.windows),
                 100 * d.share, Long(d.dropped_tokens));
  double tokens_of_all = 0;
  for (const DomainInfo& d : domains) tokens_of_all += double(d.windows * config.train.seq_len);
  text += line("run", "%lld steps of %s tokens to %s tokens (%.2g epochs) in %s",
               Long(config.total_steps()), human_count(double(config.tokens_per_step())).c_str(),
               human_count(double(config.train.tokens)).c_str(),
               double(config.train.tokens) / tokens_of_all, config.run.dir.c_str());
  const double flops = (budget.flops_per_token + budget.flops_head) *
                       double(config.tokens_per_step()) * double(config.total_steps() - first_step);
  text += line("time", "about %s at %.0f %% of the matrix rate measured here (%sFLOP/s per rank)",
               human_duration(flops / (kUsualShare * matrix_rate * ranks)).c_str(),
               100 * kUsualShare, human_count(matrix_rate).c_str());
  return text;
}

std::string end_summary(const RunConfig& config, const RunOutcome& o) {
  std::string text = line("done", "step %lld of %lld, %s tokens; %lld steps skipped", Long(o.step),
                          Long(config.total_steps()), human_count(double(o.tokens)).c_str(),
                          Long(o.skipped_steps));
  if (o.steps_here > 0 && o.seconds > 0) {
    const double tokens = double(o.steps_here * config.tokens_per_step());
    text += line("speed", "%s in %lld steps: %s tokens/s, %sFLOP/s (%.0f %% of the matrix rate)",
                 human_duration(o.seconds).c_str(), Long(o.steps_here),
                 human_count(tokens / o.seconds).c_str(), human_count(o.flops_per_second).c_str(),
                 100 * o.flops_per_second / o.matrix_rate);
  }
  text +=
      line("memory", "%s on the rank that needed most", human_bytes(double(o.peak_bytes)).c_str());
  std::vector<DomainLoss> rows = o.valid;
  if (rows.size() > 1) rows.push_back(overall(o.valid));
  for (const DomainLoss& d : rows) {
    char bits[40] = "";
    if (std::isfinite(d.bits_per_byte()))
      std::snprintf(bits, sizeof bits, "%.4f bits per byte", d.bits_per_byte());
    text += line(&d == rows.data() ? "valid" : "", "%-20s %.4f nats per token  %s",
                 d.domain.c_str(), d.nats_per_token(), bits);
  }
  text += line("files", "%s: metrics.jsonl, endpoints.jsonl, loss.svg", config.run.dir.c_str());
  if (config.run.tensorboard)
    text += line("", "tensorboard --logdir %s/tensorboard", config.run.dir.c_str());
  if (!o.checkpoint.empty())
    text += line("next", "smelt-eval --checkpoint %s", o.checkpoint.c_str());
  return text;
}

}  // namespace smelt
