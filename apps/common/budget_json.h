// Budgets as the programs write them.
#pragma once

#include <string>

#include <boost/json/object.hpp>

#include "moe/budget.h"

namespace smelt {

/// "smelt" where a layer runs more than once, else "baseline".
const char* arch_name(const ModelConfig& config);

/// "none", or "3-8 x 2": first and last layer of the span, counted from 0, and visits.
std::string loop_text(const ModelConfig& config);

/// arch flops_per_token flops_head params_total params_non_embedding params_active
/// kv_values_per_token executed_depth sparsity mean_context.
/// @param control  the fully active control that sparsity refers to, at the same mean context
boost::json::object budget_json(const ModelConfig& config, const Budget& budget,
                                const Budget& control);

}  // namespace smelt
