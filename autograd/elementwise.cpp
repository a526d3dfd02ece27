#include "autograd/elementwise.h"

#include <numeric>

#include "tensor/elementwise.h"

namespace smelt {

Variable add_scaled(const Variable& x, const Variable& y, double alpha) {
  return record("add_scaled", add_scaled(x.data(), y.data(), alpha), {x, y},
                [alpha, y_wanted = y.requires_grad()](const std::vector<Tensor>& g) {
                  Tensor dy;
                  if (y_wanted) dy = alpha == 1.0 ? g[0] : scale(g[0], alpha);
                  return std::vector<Tensor>{g[0], dy};
                });
}

Variable mul(const Variable& x, const Variable& y) {
  return record(
      "mul", mul(x.data(), y.data()), {x, y},
      [xd = x.data(), yd = y.data(), xw = x.requires_grad(),
       yw = y.requires_grad()](const std::vector<Tensor>& g) {
        return std::vector<Tensor>{xw ? mul(g[0], yd) : Tensor(), yw ? mul(g[0], xd) : Tensor()};
      });
}

Variable scale(const Variable& x, double alpha) {
  return record("scale", scale(x.data(), alpha), {x}, [alpha](const std::vector<Tensor>& g) {
    return std::vector<Tensor>{scale(g[0], alpha)};
  });
}

Variable clamp(const Variable& x, double limit) {
  return record("clamp", clamp(x.data(), limit), {x},
                [xd = x.data(), limit](const std::vector<Tensor>& g) {
                  return std::vector<Tensor>{clamp_backward(g[0], xd, limit)};
                });
}

Variable sum(const Variable& x) {
  return record("sum", sum(x.data()), {x},
                [shape = x.shape(), options = x.data().options()](const std::vector<Tensor>& g) {
                  return std::vector<Tensor>{Tensor::full(shape, g[0].item(), options)};
                });
}

Variable cast(const Variable& x, DType dtype) {
  if (dtype == x.dtype()) return x;
  SMELT_CHECK(
      DTypeError, is_floating(dtype) && is_floating(x.dtype()),
      "cast: from " << name_of(x.dtype()) << " to " << name_of(dtype) << "; both must be floating");
  return record("cast", x.data().to(dtype), {x}, [from = x.dtype()](const std::vector<Tensor>& g) {
    return std::vector<Tensor>{g[0].to(from)};
  });
}

Variable reshape(const Variable& x, Shape shape) {
  return record("reshape", x.data().reshape(std::move(shape)), {x},
                [before = x.shape()](const std::vector<Tensor>& g) {
                  return std::vector<Tensor>{g[0].reshape(before)};
                });
}

Variable transpose(const Variable& x, int64_t d0, int64_t d1) {
  return record("transpose", x.data().transpose(d0, d1), {x},
                [d0, d1](const std::vector<Tensor>& g) {
                  return std::vector<Tensor>{g[0].transpose(d0, d1)};
                });
}

std::vector<Variable> split_columns(const Variable& x, const std::vector<int64_t>& sizes) {
  check_rank("split_columns", "x", x.data(), 2);
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  SMELT_CHECK(ShapeError, total == x.dim(1),
              "split_columns: sizes sum to " << total << ", x is " << to_string(x.shape()));
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(x.data().slice(1, begin, begin + size));
    begin += size;
  }
  return record(
      "split_columns", parts, {x},
      [sizes, shape = x.shape(), options = x.data().options()](const std::vector<Tensor>& g) {
        const Tensor dx = Tensor::empty(shape, options);
        int64_t at = 0;
        for (size_t i = 0; i < sizes.size(); ++i) {
          const Tensor part = dx.slice(1, at, at + sizes[i]);
          if (g[i].defined()) {
            part.copy_(g[i]);
          } else {
            part.zero_();
          }
          at += sizes[i];
        }
        return std::vector<Tensor>{dx};
      });
}

Variable concat_rows(const std::vector<Variable>& parts) {
  SMELT_CHECK(ShapeError, !parts.empty(), "concat_rows: no parts");
  int64_t rows = 0;
  std::vector<int64_t> sizes;
  for (const Variable& part : parts) {
    check_rank("concat_rows", "part", part.data(), 2);
    check_shape("concat_rows", "part", part.data(), {part.dim(0), parts[0].dim(1)});
    check_same_options("concat_rows", part.data(), parts[0].data());
    sizes.push_back(part.dim(0));
    rows += part.dim(0);
  }
  const Tensor out = Tensor::empty({rows, parts[0].dim(1)}, parts[0].data().options());
  int64_t at = 0;
  for (const Variable& part : parts) {
    out.slice(0, at, at + part.dim(0)).copy_(part.data());
    at += part.dim(0);
  }
  return record("concat_rows", out, parts, [sizes](const std::vector<Tensor>& g) {
    std::vector<Tensor> grads;
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      grads.push_back(g[0].slice(0, begin, begin + size));
      begin += size;
    }
    return grads;
  });
}

}  // namespace smelt
