// What smelt-eval prints of its measurements.
#pragma once

#include <string>
#include <vector>

#include <boost/json/array.hpp>

#include "apps/eval/evaluation.h"

namespace smelt {

/// The document of --json: one object per checkpoint.
boost::json::array evaluations_json(const std::vector<Evaluation>& evaluations);

/// A table of at most 100 columns: a column per checkpoint, a row per quantity, and with two
/// checkpoints the ratios of their budgets. Further checkpoints follow in blocks.
std::string evaluations_table(const std::vector<Evaluation>& evaluations);

}  // namespace smelt
