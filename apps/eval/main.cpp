// smelt-eval: validation losses, budgets and generated text of checkpoints.
#include "apps/common/parallel.h"
#include "apps/eval/program.h"

int main(int argc, char** argv) {
  return smelt::run_parallel(argc, argv, smelt::eval_option_table(),
                             [](const smelt::Arguments& arguments) {
                               return smelt::run_eval(smelt::eval_options(arguments));
                             });
}
