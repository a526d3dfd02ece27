// Bad configurations: each ends with exit code 2 and one line that names the place, the value and
// what is allowed. A row is a file, a command line and the fragment that the line must hold.
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "apps/common/cli.h"

namespace bdata = boost::unit_test::data;
using namespace smelt;

namespace {

struct Bad {
  std::string ini;
  std::vector<std::string> args;
  int ranks;
  std::string message;
};
std::ostream& operator<<(std::ostream& out, const Bad& bad) { return out << bad.message; }

const std::vector<Bad> kBad = {
    // The file itself.
    {"[optim]\nlearnin_rate = 1\n",
     {},
     1,
     "bad.ini:2: unknown key optim.learnin_rate; did you mean [optim] lr?"},
    {"[model]\nseq_len = 64\n",
     {},
     1,
     "bad.ini:2: unknown key model.seq_len; did you mean [train] seq_len?"},
    {"hidden_size = 64\n",
     {},
     1,
     "bad.ini:1: unknown key hidden_size; did you mean [model] hidden_size?"},
    {"[train]\nmodel.hidden_size = 64\n", {}, 1, "bad.ini:2: unknown key train.model.hidden_size"},
    {"[optim]\nlr = 1\n\nlr = 2\n",
     {},
     1,
     "bad.ini:4: [optim] lr = 2: given twice, first on line 2"},
    {"[optim]\nlr = 1\n[model]\n[optim]\nlr = 1\n",
     {},
     1,
     "bad.ini:5: [optim] lr = 1: given twice"},
    {"[optimizer]\nlr = 1\n",
     {},
     1,
     "bad.ini:1: unknown section '[optimizer]'; sections are [model] [loop]"},
    {"[]\nlr = 1\n", {}, 1, "bad.ini:1: unknown section '[]'"},
    {"[optim\nlr = 1\n", {}, 1, "bad.ini:1: unknown section '[optim'"},
    {"[optim]\nlr\n", {}, 1, "bad.ini:2: 'lr' is neither a [section] nor key = value"},
    {"[optim]\n= 3\n", {}, 1, "bad.ini:2: '= 3' is neither"},
    {std::string("\x7f"
                 "ELF\x02\x01\0\0\n",
                 9),
     {},
     1,
     "bad.ini:1: '?ELF?\?\?\?' is neither"},
    // Values.
    {"[optim]\nlr = 1e-3x\n", {}, 1, "bad.ini:2: [optim] lr = 1e-3x: must be a number above 0"},
    {"[optim]\nlr = nan\n", {}, 1, "lr = nan: must be a number above 0"},
    {"[optim]\nlr = inf\n", {}, 1, "lr = inf: must be a number"},
    {"[optim]\nlr = 1e999\n", {}, 1, "lr = 1e999: must be a number"},
    {"[optim]\nlr =\n", {}, 1, "[optim] lr = : must be a number"},
    {"[optim]\nlr = 0\n", {}, 1, "lr = 0: must be a number above 0"},
    {"[optim]\nlr = 0,001\n", {}, 1, "lr = 0,001: must be a number"},
    {"[model]\nhidden_size = -1\n",
     {},
     1,
     "hidden_size = -1: must be a whole number from 1 to 1048576"},
    {"[model]\nhidden_size = 64.5\n", {}, 1, "hidden_size = 64.5: must be a whole number"},
    {"[model]\nhidden_size = 99999999999999999999\n", {}, 1, "must be a whole number from 1 to"},
    {"[train]\ntokens = 9223372036854775807\n",
     {},
     1,
     "tokens = 9223372036854775807: must be a whole number from 1"},
    {"[train]\nseed = -1\n", {}, 1, "seed = -1: must be a whole number of at least 0"},
    {"[loop]\nvisits = 0\n", {}, 1, "visits = 0: must be a whole number from 1"},
    {"[loop]\nstart = -2\n", {}, 1, "start = -2: must be a whole number from -1"},
    {"[loop]\norder = Span\n", {}, 1, "order = Span: must be span|layer"},
    {"[loop]\nkv = none\n", {}, 1, "kv = none: must be own|first"},
    {"[moe]\nbalance = loss\n", {}, 1, "balance = loss: must be aux|bias|none"},
    {"[train]\ndtype = fp16\n", {}, 1, "dtype = fp16: must be f32|bf16"},
    {"[train]\nrecompute = yes\n", {}, 1, "recompute = yes: must be none|moe|block"},
    {"[optim]\nschedule = linear\n", {}, 1, "schedule = linear: must be wsd|cosine|constant"},
    {"[run]\ndevice = gpu\n", {}, 1, "device = gpu: must be cpu|cuda"},
    {"[model]\nclip_qkv = -1\n", {}, 1, "clip_qkv = -1: must be a number of at least 0"},
    {"[model]\nqk_norm = maybe\n", {}, 1, "qk_norm = maybe: must be true|false|projection"},
    {"[optim]\nmin_lr_ratio = 1.5\n",
     {},
     1,
     "min_lr_ratio = 1.5: must be a number of at least 0 and at most 1"},
    {"[optim]\nbeta2 = 1\n", {}, 1, "beta2 = 1: must be a number of at least 0 and below 1"},
    {"[optim]\nbranch_tokens = 5,x\n",
     {},
     1,
     "branch_tokens = 5,x: must be whole numbers of at least 1"},
    {"[optim]\nbranch_tokens = 5,\n", {}, 1, "branch_tokens = 5,: must be whole numbers"},
    {"[data]\ntrain = data/code\n", {}, 1, "train = data/code: must be domain=prefix[:weight]"},
    {"[data]\ntrain = code=data/code:x\n", {}, 1, "must be domain=prefix[:weight]"},
    {"[data]\ntrain = code=data/code:0\n", {}, 1, "with weights above 0"},
    {"[run]\ndir =\n", {}, 1, "[run] dir = : must be a path, not empty"},
    // A wrong value in the file is wrong even when the command line replaces it.
    {"[optim]\nlr = fast\n", {"--optim.lr=1"}, 1, "bad.ini:2: [optim] lr = fast: must be a number"},
    // The command line.
    {"",
     {"--optim.learnin_rate=1"},
     1,
     "unknown option --optim.learnin_rate; did you mean [optim] lr?"},
    {"",
     {"--model.hidden=64"},
     1,
     "unknown option --model.hidden; did you mean [model] hidden_size?"},
    {"", {"--model.hidden_siz", "64"}, 1, "unknown option --model.hidden_siz"},
    {"", {"--optim.lr=1e-3x"}, 1, "--optim.lr=1e-3x: must be a number above 0"},
    {"", {"--model.hidden_size", "-1"}, 1, "--model.hidden_size=-1: must be a whole number from 1"},
    {"", {"--optim.lr=1", "--optim.lr=2"}, 1, "--optim.lr=2: given twice, first as --optim.lr=1"},
    {"", {"--optim.lr"}, 1, "optim.lr"},
    {"", {"train"}, 1, "stray word 'train'"},
    {"", {"-x"}, 1, "stray word '-x'"},
    {"", {"--jsn"}, 1, "unknown option --jsn; did you mean --json?"},
    {"", {"--json=yes"}, 1, "json"},
    {"", {"--run.dir=a#b"}, 1, "--run.dir=a#b: must be a path"},
    // Combinations.
    {"[model]\nnum_heads = 6\nnum_kv_heads = 4\n",
     {},
     1,
     "[model] num_heads = 6, [model] num_kv_heads = 4: num_heads must be a multiple of "
     "num_kv_heads (num_heads: bad.ini:2, num_kv_heads: bad.ini:3)"},
    {"[model]\nhead_dim = 33\n", {}, 1, "head_dim = 33: must be even"},
    {"[model]\ntop_k = 9\n",
     {},
     1,
     "top_k = 9, [model] num_experts = 8: top_k must be at most num_experts (top_k: bad.ini:2, "
     "num_experts: default)"},
    {"[model]\ntop_k = 1\n", {}, 1, "the router would not learn"},
    {"[loop]\nlayers = 5\n",
     {},
     1,
     "[loop] layers = 5, [model] num_layers = 4: the span must lie inside the stack"},
    {"[loop]\nlayers = 2\nstart = 3\nvisits = 2\n", {}, 1, "start + layers at most num_layers"},
    {"[loop]\nvisits = 2\n", {}, 1, "no layer is looped"},
    {"[model]\nnum_experts = 6\n",
     {"--dist.expert_parallel=4"},
     4,
     "num_experts must be a multiple of expert_parallel"},
    {"[dist]\nexpert_parallel = 2\n",
     {},
     3,
     "expert_parallel = 2: must divide the number of ranks, 3"},
    {"[train]\nglobal_batch = 6\nmicro_batch = 4\n",
     {},
     1,
     "global_batch must be a multiple of ranks x micro_batch = 1 x 4 = 4"},
    {"", {}, 3, "ranks x micro_batch = 3 x 4 = 12"},
    {"[train]\nseq_len = 4096\n",
     {},
     1,
     "[train] seq_len = 4096, [model] max_seq_len = 2048: seq_len must be at most"},
    {"[train]\ntokens = 1000\n[optim]\nwarmup_tokens = 1001\n",
     {},
     1,
     "the warm-up must end within the run"},
    {"[train]\ntokens = 1000\n[optim]\nwarmup_tokens = 500\ndecay_tokens = 501\n",
     {},
     1,
     "warm-up and decay together must fit"},
    {"[optim]\nbranch_tokens = 200000, 100000\n",
     {},
     1,
     "branch_tokens = 200000, 100000: must be ascending"},
    {"[optim]\nbranch_tokens = 100000, 100000\n", {}, 1, "must be ascending"},
    {"[optim]\nbranch_tokens = 4095\n", {}, 1, "at least one step, 4096 tokens"},
    {"[optim]\nbranch_tokens = 99999999\n", {}, 1, "branches must end within the run"},
    {"[optim]\nbranch_tokens = 100000\ndecay_tokens = 100000\n",
     {},
     1,
     "the first branch must hold warm-up and decay"},
    {"[optim]\nschedule = cosine\nbranch_tokens = 100000\n",
     {},
     1,
     "decay branches need schedule = wsd"},
    {"[moe]\naux_loss_coef = 0\n", {}, 1, "without one set balance = none"},
    {"[moe]\nbalance = bias\nbias_update_rate = 0\n",
     {},
     1,
     "a selection bias needs an update rate above 0"},
    {"[model]\nnum_layers = 65536\nnum_experts = 1048576\nhidden_size = "
     "1048576\nexpert_hidden_size = 1048576\n",
     {},
     1,
     "parameters, more than 2^58"},
    {"[train]\nmicro_batch = 1048576\nglobal_batch = 1048576\nseq_len = 2048\n",
     {},
     1,
     "2^31 rows or more"},
    {"[loop]\nlayers = 1025\nvisits = 1024\n[model]\nnum_layers = 2048\n",
     {},
     1,
     "more than 1048576 layers would be executed"},
    // Data.
    {"", {}, 1, "[data] train is empty"},
    {"[data]\ntrain = a=x\nvalid = a=x, a=y\n", {}, 1, "valid names domain a twice"},
};

struct Outcome {
  int code = 0;
  std::string errors;
};

// Runs a program that reads its configuration as smelt-pretrain does.
Outcome run(const std::string& ini, std::vector<std::string> args, int ranks) {
  std::ofstream("bad.ini", std::ios::binary) << ini;
  OptionTable table("pretrain", "Trains.");
  table.with_config();
  std::vector<std::string> words = {"smelt-pretrain", "--config=bad.ini"};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  std::ostringstream captured;
  std::streambuf* before = std::cerr.rdbuf(captured.rdbuf());
  const int code = run_program(static_cast<int>(argv.size()), argv.data(), table,
                               [&](const Arguments& arguments) {
                                 const LoadedConfig loaded = arguments.config();
                                 validate(loaded, ranks);
                                 validate_data(loaded.config);
                                 return 0;
                               });
  std::cerr.rdbuf(before);
  return {code, captured.str()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config_refusals)

BOOST_DATA_TEST_CASE(ends_with_code_2_and_one_line_that_names_the_cause, bdata::make(kBad), bad) {
  const Outcome outcome = run(bad.ini, bad.args, bad.ranks);
  BOOST_TEST_CONTEXT("message: " << outcome.errors) {
    BOOST_TEST(outcome.code == 2);
    BOOST_TEST(outcome.errors.rfind("smelt-pretrain: error: ", 0) == 0u);
    BOOST_TEST(outcome.errors.find('\n') == outcome.errors.size() - 1);
    BOOST_TEST(outcome.errors.find(bad.message) != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_good_configuration_passes_the_same_way) {
  const Outcome outcome = run("[data]\ntrain = a=x\nvalid = a=y\n", {"--model.num_layers", "6"}, 2);
  BOOST_TEST(outcome.code == 0);
  BOOST_TEST(outcome.errors == "");
}

BOOST_AUTO_TEST_CASE(a_missing_file_and_a_folder_are_named) {
  for (const std::string path : {"no/such.ini", "."}) {
    std::vector<std::string> words = {"smelt-pretrain", "--config", path};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    OptionTable table("pretrain", "Trains.");
    table.with_config();
    std::ostringstream captured;
    std::streambuf* before = std::cerr.rdbuf(captured.rdbuf());
    const int code = run_program(3, argv.data(), table, [](const Arguments& arguments) {
      arguments.config();
      return 0;
    });
    std::cerr.rdbuf(before);
    BOOST_TEST(code == 2);
    BOOST_TEST(captured.str().find("error: " + path + ": ") != std::string::npos, captured.str());
  }
}

BOOST_AUTO_TEST_CASE(a_build_without_cuda_refuses_the_device) {
  RunConfig config = parse_config("[run]\ndevice = cuda\n");
  if (built_with_cuda())
    BOOST_CHECK_NO_THROW(validate(config, 1));
  else
    BOOST_CHECK_EXCEPTION(validate(config, 1), ConfigError, [](const ConfigError& error) {
      return std::string(error.what()).find("no CUDA kernels") != std::string::npos;
    });
}

BOOST_AUTO_TEST_CASE(values_set_in_code_keep_to_the_same_ranges) {
  RunConfig config = parse_config("");
  config.optim.beta1 = 1.5;
  BOOST_CHECK_THROW(validate(config, 1), ConfigError);
  config = parse_config("");
  config.model.hidden_size = 0;
  BOOST_CHECK_THROW(validate(config, 1), ConfigError);
  BOOST_CHECK_THROW(validate(parse_config(""), 0), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
