// smelt-export: a model as a Hugging Face folder, looped or unrolled.
#include <cstdio>
#include <iostream>

#include <boost/json.hpp>

#include "apps/common/metrics.h"
#include "apps/common/progress.h"
#include "apps/export/export.h"

namespace {

int run(const smelt::Arguments& arguments) {
  const smelt::ExportOptions options = smelt::export_options(arguments);
  const smelt::ExportResult result = smelt::export_model(options);
  if (arguments.json()) {
    std::cout << smelt::json_line({{"checkpoint", result.checkpoint},
                                   {"out", options.out},
                                   {"model_type", result.model_type},
                                   {"num_layers", result.model.num_layers},
                                   {"unrolled", options.unroll},
                                   {"tensors", result.tensors},
                                   {"bytes", result.bytes}})
              << "\n";
    return 0;
  }
  std::printf("wrote %s: %s, %lld layers, %lld tensors, %s\n", options.out.c_str(),
              result.model_type.c_str(), static_cast<long long>(result.model.num_layers),
              static_cast<long long>(result.tensors),
              smelt::human_bytes(double(result.bytes)).c_str());
  if (result.model_type == "smelt")
    std::printf("%s", "only smelt programs open it; --unroll makes a plain folder of a loop\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return smelt::run_program(argc, argv, smelt::export_option_table(), run);
}
