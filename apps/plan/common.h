// What the commands of smelt-plan share: the mean context that F is counted at, sizes of a model in
// words, and tables of them.
#pragma once

#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "apps/common/cli.h"
#include "moe/match.h"

namespace smelt {

/// --mean-context and --data.
void add_context_options(OptionTable* table);

struct MeanContext {
  double keys = 0;
  std::string source;  // "given", "of the documents in ...", "full causal sequences of 4096"
};
/// From the options, else that of full causal sequences of train.seq_len.
MeanContext mean_context_of(const Arguments& arguments, const TrainConfig& train);

/// A file's configuration, or that of the command line, valid for some number of ranks whatever
/// the device. @throws ConfigError
LoadedConfig load_valid_config(const std::string& path);
LoadedConfig valid_config(const Arguments& arguments);

/// budget_json with the sizes of the model.
boost::json::object planned_json(const ModelConfig& config, const Budget& budget,
                                 const Budget& control);
boost::json::object ratio_json(const BudgetTriple& ratio);

/// One line per model of at most 100 columns: sizes, budgets and, where a reference was given,
/// ratios to it.
class ModelTable {
 public:
  /// @param markdown  a table of Markdown instead of aligned columns
  explicit ModelTable(bool markdown = false);
  void add(const std::string& name, const ModelConfig& config, const Budget& budget,
           double sparsity, const Budget* reference);
  std::string text() const;

 private:
  bool markdown_;
  std::vector<std::vector<std::string>> rows_;
};

/// Prints text to stdout, or to stderr when stdout is for JSON.
void print(const Arguments& arguments, const std::string& text);

/// The commands.
OptionTable show_options();
int run_show(const Arguments& arguments);
OptionTable match_options();
int run_match(const Arguments& arguments);
OptionTable ladder_options();
int run_ladder(const Arguments& arguments);
OptionTable layout_options();
int run_layout(const Arguments& arguments);

}  // namespace smelt
