// config.json of any bytes: a model whose config.json reads back to itself, or IoError.
#include "apps/common/model_json.h"

#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace smelt;
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const ModelJson model = parse_model_json(text, "config.json");
    // Biases of a stranger's file are not in its config; without them the family must be kept or
    // be the plain one that the sizes are.
    const ModelJson again =
        parse_model_json(write_model_json(model.config, model.eos_ids), "written config.json");
    if (again.config.hidden_size != model.config.hidden_size || again.eos_ids != model.eos_ids ||
        again.config.qk_norm != model.config.qk_norm ||
        again.config.loop.visits != (again.family == Family::smelt ? model.config.loop.visits : 1))
      __builtin_trap();
  } catch (const IoError&) {
  }
  return 0;
}
