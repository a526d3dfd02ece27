#include "apps/eval/options.h"

#include <set>

#include "apps/common/config_schema.h"
#include "tensor/error.h"

namespace smelt {
namespace {

constexpr double kMany = 1e15;

std::vector<DataSource> parse_data(const std::vector<std::string>& items) {
  std::string joined;
  for (const std::string& item : items) joined += (joined.empty() ? "" : ", ") + item;
  RunConfig parsed;
  const ConfigKey* key = find_config_key("data.valid");
  SMELT_CHECK(ConfigError, key->set(parsed, joined),
              "--data=" << joined << ": must be " << key->allowed);
  std::set<std::string> names;
  for (const DataSource& source : parsed.data.valid) {
    SMELT_CHECK(ConfigError, names.insert(source.domain).second,
                "--data: domain '" << source.domain << "' is given twice");
    SMELT_CHECK(ConfigError, source.domain != "overall",
                "--data: 'overall' is the name of the sum of all domains; choose another");
  }
  return parsed.data.valid;
}

}  // namespace

OptionTable eval_option_table() {
  OptionTable table("eval",
                    "Validation loss of checkpoints, in nats per token and bits per byte, by "
                    "domain and overall, with their budgets; and text generated from prompts. Runs "
                    "alone or under mpirun, with the same results.");
  table
      .list("checkpoint", "DIR",
            "checkpoint folders; a run folder stands for its latest whole checkpoint (required)")
      .list("data", "DOMAIN=PREFIX",
            "token files to score; default: [data] valid of the checkpoint's config.ini, or none "
            "with --generate")
      .integer("seq-len", 0, 0, 1 << 24, "tokens",
               "length of the scored sequences; 0: train.seq_len of the checkpoint's config.ini")
      .integer("batch", 8, 1, 1 << 20, "sequences", "sequences in one pass of one rank")
      .integer("max-tokens", 0, 0, int64_t{1} << 50, "tokens",
               "score this much of each domain; 0: all")
      .flag("no-document-mask",
            "let attention cross document ends; default: as in training (config.ini), masked when "
            "there is no config.ini")
      .flag("router-aux",
            "also give the balancing loss of the scored data as transformers computes it, over the "
            "rows of all layers together: top_k at perfect balance")
      .integer("visits", 0, 0, 1024, "visits",
               "run the looped span this often instead of as often as in training; recorded in the "
               "results; 0: as trained")
      .word("dtype", "f32", {"f32", "bf16"}, "compute type")
      .integer("expert-parallel", 1, 1, 65536, "ranks",
               "ranks that share the experts of a layer; divides ranks and experts")
      .list("generate", "PROMPT",
            "continue this text, once for each time the option is given; may hold commas")
      .integer("max-new-tokens", 128, 1, 1 << 24, "tokens", "longest continuation of a prompt")
      .number("temperature", 0, 0, 1000, "", "of sampling; 0: always the likeliest token")
      .integer("top-k", 0, 0, 1 << 24, "tokens", "sample among the likeliest only; 0: all")
      .number("top-p", 1, 0, 1, "", "then among the fewest that reach this probability")
      .integer("seed", 0, 0, int64_t(kMany), "", "of sampling")
      .list("figure", "FILE",
            "draw the training and validation loss of the checkpoints' run folders (.svg or .png)");
  return table;
}

EvalOptions eval_options(const Arguments& arguments) {
  EvalOptions options;
  options.checkpoints = arguments.list("checkpoint");
  SMELT_CHECK(ConfigError, !options.checkpoints.empty(),
              "--checkpoint=DIR is required: a checkpoint or run folder to evaluate");
  if (arguments.given("data")) options.data = parse_data(arguments.list("data"));
  options.seq_len = arguments.integer("seq-len");
  options.batch = arguments.integer("batch");
  options.max_tokens = arguments.integer("max-tokens");
  options.no_document_mask = arguments.flag("no-document-mask");
  options.router_aux = arguments.flag("router-aux");
  if (const int64_t visits = arguments.integer("visits"); visits > 0) options.visits = visits;
  options.dtype = arguments.text("dtype") == "bf16" ? DType::bf16 : DType::f32;
  options.expert_parallel = arguments.integer("expert-parallel");
  options.prompts = arguments.values("generate");
  options.max_new_tokens = arguments.integer("max-new-tokens");
  options.sampling.temperature = arguments.number("temperature");
  options.sampling.top_k = arguments.integer("top-k");
  options.sampling.top_p = arguments.number("top-p");
  options.sampling.seed = uint64_t(arguments.integer("seed"));
  validate(options.sampling);
  options.figures = arguments.list("figure");
  for (const std::string& figure : options.figures)
    SMELT_CHECK(ConfigError, figure.ends_with(".svg") || figure.ends_with(".png"),
                "--figure=" << figure << ": must end in .svg or .png");
  options.json = arguments.json();
  return options;
}

}  // namespace smelt
