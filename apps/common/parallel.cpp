#include "apps/common/parallel.h"

#include <chrono>
#include <csignal>
#include <string_view>
#include <thread>

#include "dist/environment.h"
#include "dist/group.h"

namespace smelt {

int run_parallel(int argc, char** argv, const OptionTable& table,
                 const std::function<int(const Arguments&)>& body) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit shall be an error with a message
  const dist::Environment environment(argc, argv);
  const dist::World world(1);
  const int rank = world.world().rank();
  if (world.world().size() > 1) {
    // An error that all ranks share is told by rank 0, which ends the others while they wait.
    set_failure_hooks({.before_message =
                           [rank] {
                             std::this_thread::sleep_for(
                                 std::chrono::milliseconds(rank > 0 ? 1000 + 50 * rank : 0));
                           },
                       .abort = [](int code) { dist::abort(code); }});
    for (int i = 1; i < argc && rank > 0; ++i) {
      const std::string_view word = argv[i];
      if (word == "--help" || word == "-h" || word == "--version" || word == "--dry-run") return 0;
    }
  }
  return run_program(argc, argv, table, body);
}

}  // namespace smelt
