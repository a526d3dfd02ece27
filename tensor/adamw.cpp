#include "tensor/adamw.h"

#include "tensor/kernels/adamw.h"
#include "tensor/kernels/checks.h"

namespace smelt {

void adamw_(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v,
            const AdamWStep& step) {
  check_full_precision("adamw_", "param", param);
  const struct {
    const char* name;
    const Tensor& tensor;
  } buffers[] = {{"param", param}, {"grad", grad}, {"m", m}, {"v", v}};
  for (const auto& [name, tensor] : buffers) {
    check_defined("adamw_", name, tensor);
    check_dtype("adamw_", name, tensor, param.dtype());
    check_same_device("adamw_", tensor, param);
    SMELT_CHECK(ShapeError, tensor.numel() == param.numel(),
                "adamw_: " << name << " " << to_string(tensor.shape())
                           << " must have the size of param " << to_string(param.shape()));
    SMELT_CHECK(
        ShapeError, tensor.is_contiguous(),
        "adamw_: " << name << " of shape " << to_string(tensor.shape()) << " must be contiguous");
  }
  SMELT_CHECK(ConfigError, step.step >= 1, "adamw_: step must be at least 1, is " << step.step);
  SMELT_DISPATCH(param.device(), adamw, param, grad, m, v, step);
}

}  // namespace smelt
