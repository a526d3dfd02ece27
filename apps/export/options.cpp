#include "apps/export/options.h"

#include <cmath>

#include "apps/common/config_schema.h"
#include "tensor/error.h"

namespace smelt {

OptionTable export_option_table() {
  OptionTable table(
      "export",
      "Writes a model as a Hugging Face folder. An unlooped model becomes the Qwen3-MoE, OLMoE or "
      "Mixtral folder that it is. A looped one keeps its loop in config.json (model_type smelt), "
      "which is the form that stores shared layers once; --unroll makes a plain folder of it, with "
      "a layer for each executed one, that other tools load. The folder appears whole or not at "
      "all, and one tensor at a time is in memory.");
  table.required("checkpoint", "DIR", "checkpoint, run or Hugging Face folder")
      .required("out", "DIR", "the folder to write; must not exist")
      .flag("unroll",
            "repeat the looped layers and put the residual scale into o_proj and the experts' "
            "down_proj; exact but for underflow, which is refused")
      .word("dtype", "same", {"same", "f32", "bf16", "f16"},
            "element type of the files; same: as each tensor is")
      .text("shard-size", "5GB", "SIZE",
            "largest file, unless one tensor alone is larger: 5GB, 500MB, 64MiB or bytes")
      .flag("tied",
            "leave out a head that repeats the embedding, and say so in config.json "
            "(tie_word_embeddings); a model that was trained so is always written so. Safetensors "
            "files cannot hold one tensor under two names, so unrolled layers have no such form")
      .flag("untied", "write the head of a tied model out, a second time");
  return table;
}

int64_t parse_bytes(const std::string& text) {
  struct Unit {
    const char* name;
    double bytes;
  };
  for (const Unit& unit : {Unit{"KiB", 0x1p10},
                           {"MiB", 0x1p20},
                           {"GiB", 0x1p30},
                           {"KB", 1e3},
                           {"MB", 1e6},
                           {"GB", 1e9},
                           {"", 1}}) {
    if (!text.ends_with(unit.name)) continue;
    double number = 0;
    const std::string digits = text.substr(0, text.size() - std::string(unit.name).size());
    if (!parse_number(digits, &number)) return 0;
    const double bytes = number * unit.bytes;
    return bytes >= 1 && bytes < 0x1p60 ? int64_t(bytes) : 0;
  }
  return 0;
}

ExportOptions export_options(const Arguments& arguments) {
  ExportOptions options;
  options.source = arguments.text("checkpoint");
  options.out = arguments.text("out");
  options.unroll = arguments.flag("unroll");
  SMELT_CHECK(ConfigError, !arguments.flag("tied") || !arguments.flag("untied"),
              "--tied and --untied exclude each other");
  if (arguments.flag("tied")) options.head = HeadForm::tied;
  if (arguments.flag("untied")) options.head = HeadForm::untied;
  const std::string dtype = arguments.text("dtype");
  options.dtype = dtype == "f32"    ? FileType::f32
                  : dtype == "bf16" ? FileType::bf16
                  : dtype == "f16"  ? FileType::f16
                                    : FileType::same;
  options.shard_bytes = parse_bytes(arguments.text("shard-size"));
  SMELT_CHECK(ConfigError, options.shard_bytes >= 1,
              "--shard-size=" << arguments.text("shard-size")
                              << ": must be a size such as 5GB, 500MB, 64MiB or a number of bytes");
  return options;
}

}  // namespace smelt
