// smelt-eval: validation losses, budgets and generated text of checkpoints.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "apps/eval/program.h"
#include "dist/environment.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit shows as a failed write, told as an error
  const smelt::dist::Environment environment(argc, argv);
  const smelt::dist::Group world = smelt::dist::World(1).world();
  if (world.size() > 1) {
    // Only rank 0 speaks on stdout (--help included), and an error common to all ranks is told
    // once: the others wait long enough to be ended by the first.
    if (world.rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr)
      smelt::dist::abort(1);
    smelt::set_failure_hooks({[rank = world.rank()] {
                                if (rank > 0)
                                  std::this_thread::sleep_for(
                                      std::chrono::milliseconds(800 + 200 * rank));
                              },
                              [](int code) { smelt::dist::abort(code); }});
  }
  return smelt::run_program(argc, argv, smelt::eval_option_table(),
                            [](const smelt::Arguments& arguments) {
                              return smelt::run_eval(smelt::eval_options(arguments));
                            });
}
