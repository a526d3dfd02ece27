// From the options of a command to a matched configuration file, for one Baseline or for many.
#pragma once

#include <string>
#include <vector>

#include "apps/common/cli.h"
#include "moe/match.h"

namespace smelt {

/// Options that say what is searched for: the loop, grids, tolerances and targets.
void add_matching_options(OptionTable* table);

/// The search that the options ask for. num_experts keeps to multiples of dist.expert_parallel.
/// @throws ConfigError naming the option, its value and what is allowed
MatchOptions matching_of(const Arguments& arguments, const RunConfig& baseline);

/// A Baseline's configuration with the sizes and the loop of a match. The run's folder gets the
/// name of its own: "baseline" in it becomes "smelt" or, without a loop, "control".
RunConfig matched_config(const RunConfig& baseline, const Match& match);

/// INI text with the keys that the Baseline's file sets and those that the match changed, below a
/// comment with the ratios and the mean context.
std::string matched_ini(const LoadedConfig& baseline, const Match& match,
                        const std::string& baseline_name);

}  // namespace smelt
