// smelt-pretrain: trains a looped MoE transformer from a configuration; see --help.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <omp.h>

#include "apps/common/machine.h"
#include "apps/common/parallel.h"
#include "apps/pretrain/trainer.h"
#include "dist/environment.h"

namespace smelt {
namespace {

int pretrain(const Arguments& arguments) {
  const LoadedConfig loaded = arguments.config();
  const RunConfig& config = loaded.config;
  const int ranks = dist::World(1).world().size();
  validate(loaded, ranks);
  const dist::World world(int(config.dist.expert_parallel));
  const bool first = world.world().rank() == 0;

  const dist::CoreShare share = dist::core_share(world.world());
  if (std::getenv("OMP_NUM_THREADS") == nullptr) omp_set_num_threads(share.threads_per_rank());
  const std::string warning = dist::binding_warning(omp_get_max_threads(), share);
  if (first && !warning.empty()) std::fprintf(stderr, "warning: %s\n", warning.c_str());

  SMELT_CHECK(ConfigError, !(arguments.flag("resume") && arguments.flag("overwrite")),
              "--resume and --overwrite exclude each other");
  TrainerOptions options;
  options.mode = arguments.flag("resume")      ? RunMode::resume
                 : arguments.flag("overwrite") ? RunMode::overwrite
                                               : RunMode::fresh;
  options.accept_changes = arguments.flag("accept-changes");
  options.max_skipped_steps = arguments.integer("max-skipped-steps");
  StepProfile profile(first ? arguments.text("profile") : "", arguments.integer("profile-steps"));
  options.profile = &profile;
  install_stop_signals();
  Trainer trainer(config, options, world);
  // All ranks at once, as they will compute.
  const double rate = matrix_rate(config.train.dtype, 1024);
  if (first) {
    std::fputs(start_summary(config, world, omp_get_max_threads(), trainer.data(),
                             trainer.state().step, rate)
                   .c_str(),
               stderr);
  }
  const Trainer::End end = trainer.run();
  profile.write();
  RunOutcome outcome = trainer.outcome();  // collective
  outcome.matrix_rate = rate * world.world().size();
  if (first) std::fputs(end_summary(config, outcome).c_str(), stderr);
  if (first && end == Trainer::End::stopped) {
    std::fprintf(stderr, "stopped by %s; go on with --resume\n",
                 *stop_signal_name() ? stop_signal_name() : "run.time_limit");
  }
  if (first && arguments.json()) std::cout << json_line(trainer.endpoint()) << "\n";
  return 0;
}

}  // namespace
}  // namespace smelt

int main(int argc, char** argv) {
  smelt::OptionTable options(
      "pretrain",
      "Trains a (looped) mixture-of-experts transformer. Start it with mpirun to use several "
      "ranks: mpirun -n 2 --bind-to none smelt-pretrain --config FILE");
  options.with_config();
  options.flag("resume", "go on from the latest whole checkpoint in run.dir");
  options.flag("overwrite", "remove the earlier run in run.dir and begin again");
  options.flag("accept-changes",
               "resume although settings or data that shape the run have changed");
  options.integer("max-skipped-steps", 20, 1, 1000000, "steps",
                  "end with an error after this many steps in a row with a loss or gradient that "
                  "is not finite");
  options.text("profile", "", "FILE",
               "record where some steps' time goes on rank 0, as a trace for chrome://tracing or "
               "Perfetto, and print a table");
  options.integer("profile-steps", 3, 1, 1000, "steps", "how many, after the first two");
  return smelt::run_parallel(argc, argv, options, smelt::pretrain);
}
