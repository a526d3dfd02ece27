// smelt-bench: training steps, fused operations, generation, growth, loading and tokenizers,
// measured.
#include "apps/bench/measure.h"

int main(int argc, char** argv) {
  return smelt::run_commands(argc, argv,
                             {{"", smelt::steps_options(), smelt::run_steps},
                              {"operations", smelt::operations_options(), smelt::run_operations},
                              {"generation", smelt::generation_options(), smelt::run_generation},
                              {"growth", smelt::growth_options(), smelt::run_growth},
                              {"load", smelt::load_options(), smelt::run_load},
                              {"tokenizer", smelt::tokenizer_options(), smelt::run_tokenizer}});
}
