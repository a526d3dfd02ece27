// Command line of smelt-export.
#pragma once

#include <cstdint>
#include <string>

#include "apps/common/cli.h"

namespace smelt {

/// What becomes of an output head: as it is, left out because it repeats the embedding, or written
/// out although it does.
enum class HeadForm { as_it_is, tied, untied };
/// Element type of the written files: each tensor as it is, or all of one.
enum class FileType { same, f32, bf16, f16 };

struct ExportOptions {
  std::string source, out;  // folders
  bool unroll = false;
  HeadForm head = HeadForm::as_it_is;
  FileType dtype = FileType::same;
  int64_t shard_bytes = 0;
};

OptionTable export_option_table();
/// @throws ConfigError naming the option, its value and what is allowed.
ExportOptions export_options(const Arguments& arguments);

/// Bytes of "5GB", "500MB", "100KB" (powers of 1000) or "4GiB", "64MiB", "8KiB" (powers of 1024) or
/// a plain number; 0 for any other text.
int64_t parse_bytes(const std::string& text);

}  // namespace smelt
