#include "apps/eval/program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <boost/json.hpp>
#include <omp.h>

#include "apps/common/metrics.h"
#include "apps/common/run_folder.h"
#include "apps/eval/curves.h"
#include "apps/eval/evaluation.h"
#include "apps/eval/report.h"
#include "dist/environment.h"
#include "dist/group.h"

namespace smelt {
namespace {

void draw_curves(const EvalOptions& options, const std::vector<Evaluation>& evaluations) {
  std::vector<CurveSource> runs;
  for (const Evaluation& e : evaluations) {
    const bool logged =
        !e.run_folder.empty() && std::filesystem::exists(RunFolder(e.run_folder).metrics());
    SMELT_CHECK(ConfigError, logged,
                "--figure: " << e.checkpoint << " belongs to no run folder with metrics.jsonl");
    const bool drawn = std::any_of(runs.begin(), runs.end(), [&](const CurveSource& run) {
      return run.run_folder == e.run_folder;
    });
    if (!drawn)
      runs.push_back({std::filesystem::path(e.run_folder).filename().string(), e.run_folder});
  }
  const Figure figure = loss_curves(runs);
  for (const std::string& path : options.figures)
    if (draw_figure(figure, path)) std::fprintf(stderr, "drew %s\n", path.c_str());
}

}  // namespace

int run_eval(const EvalOptions& options) {
  const dist::World world(int(options.expert_parallel));
  const bool first = world.world().rank() == 0;
  const dist::CoreShare share = dist::core_share(world.world());
  if (std::getenv("OMP_NUM_THREADS") == nullptr) omp_set_num_threads(share.threads_per_rank());
  const std::string warning = dist::binding_warning(omp_get_max_threads(), share);
  if (first && !warning.empty()) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  TextSink on_text;
  if (first && !options.json)
    on_text = [](const std::string& piece) { std::cout << piece << std::flush; };
  std::vector<Evaluation> evaluations;
  for (const std::string& path : options.checkpoints)
    evaluations.push_back(evaluate_checkpoint(path, options, world, on_text));
  if (!first) return 0;
  if (!options.figures.empty()) draw_curves(options, evaluations);
  if (options.json) {
    std::cout << json_line(evaluations_json(evaluations)) << "\n";
  } else if (options.measures_loss()) {
    std::cout << evaluations_table(evaluations);
  }
  return 0;
}

}  // namespace smelt
