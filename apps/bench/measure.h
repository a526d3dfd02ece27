// What all commands of smelt-bench share: clocks, the rates of the machine, and a model that trains
// on random tokens.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "apps/bench/cases.h"
#include "apps/common/cli.h"
#include "apps/common/machine.h"
#include "moe/train_step.h"

namespace smelt {

/// Bytes per second of a sum over an array that no cache holds.
double read_rate();
/// Processor, threads and rates.
boost::json::object measure_machine();

/// A model with its optimizer on this process alone, and a batch of random tokens.
class TrainingLoad {
 public:
  TrainingLoad(const ModelConfig& model, DType dtype, int64_t batch, int64_t seq_len,
               Recompute recompute = Recompute::none);
  void step();

 private:
  dist::World world_{1};
  MoeTransformer model_;
  ShardedOptimizer optimizer_;
  ModelInput input_;
};

/// The first of the results that this program prints with these options and --json, in a process of
/// its own, whose peak memory is then its own.
boost::json::object run_apart(const std::vector<std::string>& options, const std::string& key);

/// Where a command prints its table: stdout, or stderr when stdout is for JSON.
std::FILE* table_stream(const Arguments& arguments);
/// Prints the document where --json asks for it and writes it to --out where given.
void finish(const Arguments& arguments, const boost::json::object& document);

/// The commands.
OptionTable steps_options();
int run_steps(const Arguments& arguments);
OptionTable operations_options();
int run_operations(const Arguments& arguments);
OptionTable generation_options();
int run_generation(const Arguments& arguments);
OptionTable load_options();
int run_load(const Arguments& arguments);
OptionTable tokenizer_options();
int run_tokenizer(const Arguments& arguments);
OptionTable growth_options();
int run_growth(const Arguments& arguments);

}  // namespace smelt
