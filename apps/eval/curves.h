// The loss curves of runs, from their metrics.jsonl.
#pragma once

#include <string>
#include <vector>

#include "apps/common/figures.h"

namespace smelt {

/// A run folder and what it is called in the figure.
struct CurveSource {
  std::string name, run_folder;
};

/// Training loss (a moving average) as lines and validation loss as points, over training tokens,
/// of all runs in one chart. Lines of decay branches are left out.
/// @throws IoError when a run has no metrics.jsonl or it cannot be read
Figure loss_curves(const std::vector<CurveSource>& runs);

/// The mean of each value and its neighbours, `reach` on both sides and fewer at the ends; values
/// that are not finite are left out of it.
std::vector<double> smoothed(const std::vector<double>& values, size_t reach);

}  // namespace smelt
