// smelt-plan: budgets of a configuration, matched configurations, ladders of them, and layouts.
#include "apps/plan/common.h"

int main(int argc, char** argv) {
  return smelt::run_commands(argc, argv,
                             {{"", smelt::show_options(), smelt::run_show},
                              {"match", smelt::match_options(), smelt::run_match},
                              {"ladder", smelt::ladder_options(), smelt::run_ladder},
                              {"layout", smelt::layout_options(), smelt::run_layout}});
}
