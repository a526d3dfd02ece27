// A program for failure_test: what happens to all ranks when one fails, by the way it fails.
#include <cstdio>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include "dist/collectives.h"
#include "dist/environment.h"
#include "dist/gradient_reducer.h"
#include "dist/group.h"

namespace {

using namespace smelt;
using namespace smelt::dist;

/// Rank 1 throws while the others wait for it.
void throw_on_rank_1(const World& world) {
  if (world.world().rank() == 1) throw RunError("step 3, checkpoint: disk full");
  all_reduce_sum_(Tensor::zeros({100000}), world.world());
}

/// The same while reductions are under way, so that their destructors run.
void throw_during_backward(const World& world) {
  const BucketLayout layout =
      plan_buckets({300000, 300000}, world.world().size(), 1 << 20, DType::f32);
  GradientReducer reducer(Tensor::zeros({layout.numel}), world.world(), layout);
  reducer.ready(1);
  if (world.world().rank() == 1) throw RunError("step 3, backward: out of memory");
  reducer.finish();
}

void run(const std::string& mode) {
  const World world(1);
  if (mode == "collective" || mode == "escape" || mode == "unwind") throw_on_rank_1(world);
  if (mode == "backward") throw_during_backward(world);
  if (mode == "everywhere") throw ConfigError("config.ini: model.top_k = 9 is above num_experts");
  if (mode == "verdict") {
    const std::string error =
        first_error(world.world().rank() == 1 ? "shard 7 is damaged" : "", world.world());
    if (!error.empty()) throw IoError(error);
  }
  if (mode == "killed") {
    if (world.world().rank() == 1) _exit(9);
    barrier(world.world());
  }
  if (mode == "binding") {
    const CoreShare share = core_share(world.world());
    const std::string warning = binding_warning(share.online_cores + 1, share);
    if (world.world().rank() == 0) std::printf("warning: %s\n", warning.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "unwind") {
    try {
      const Environment environment(argc, argv);
      run(mode);
    } catch (const std::exception&) {
      return 1;
    }
    return 0;
  }
  const Environment environment(argc, argv);
  if (mode == "escape") {
    run(mode);
    return 0;
  }
  try {
    run(mode);
  } catch (const ConfigError& e) {
    fail(e.what(), 2);
  } catch (const IoError& e) {
    fail(e.what(), 2);
  } catch (const std::exception& e) {
    fail(e.what(), 1);
  }
  return 0;
}
