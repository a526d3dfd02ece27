// smelt-bench operations: fused operations against the same result composed of plain ones.
#include <cmath>
#include <cstdio>
#include <limits>

#include <boost/json.hpp>

#include "apps/bench/measure.h"
#include "apps/common/progress.h"
#include "tensor/attention.h"
#include "tensor/elementwise.h"
#include "tensor/gemm.h"
#include "tensor/loss.h"
#include "tensor/norm.h"
#include "tensor/rng.h"
#include "tensor/routing.h"
#include "tensor/rows.h"

namespace smelt {
namespace {

namespace json = boost::json;

/// Values in [-1, 1), a different stream for each name.
Tensor uniform(const Shape& shape, const char* name) {
  const Random random(3, name);
  std::vector<float> values;
  for (int64_t i = 0; i < numel_of(shape); ++i)
    values.push_back(float(2 * random.uniform(uint64_t(i)) - 1));
  return Tensor::from(values).view(shape);
}

struct Pair {
  const char* name;
  const char* plain;  // what the composition is
  std::function<void()> fused, composed;
};

/// Rows of uneven experts: expert e of E gets rows in proportion to e + 1.
std::vector<int64_t> uneven_offsets(int64_t rows, int64_t experts) {
  std::vector<int64_t> offsets = {0};
  for (int64_t e = 1; e <= experts; ++e)
    offsets.push_back(rows * e * (e + 1) / (experts * (experts + 1)));
  return offsets;
}

Pair grouped_product() {
  const int64_t rows = 8192, experts = 64, in = 512, out = 352;
  const Tensor x = uniform({rows, in}, "x"), w = uniform({experts, in, out}, "w");
  const std::vector<int64_t> offsets = uneven_offsets(rows, experts);
  return {"grouped_matmul", "one matmul per expert", [=] { grouped_matmul(x, w, offsets); },
          [=] {
            const Tensor y = Tensor::empty({rows, out});
            for (int64_t e = 0; e < experts; ++e) {
              const int64_t begin = offsets[size_t(e)], end = offsets[size_t(e) + 1];
              matmul_(y.slice(0, begin, end), x.slice(0, begin, end),
                      w.slice(0, e, e + 1).view({in, out}), 1, 0);
            }
          }};
}

Pair loss() {
  const int64_t tokens = 1024, size = 512, words = 8192;
  const Tensor x = uniform({tokens, size}, "x"), w = uniform({words, size}, "w");
  std::vector<int32_t> ids;
  const Random random(3, "targets");
  for (int64_t t = 0; t < tokens; ++t)
    ids.push_back(int32_t(random.below(uint64_t(t), uint64_t(words))));
  const Tensor targets = Tensor::from(ids);
  // One-hot rows of the targets stand ready: making them is not counted.
  const Tensor hot = Tensor::zeros({tokens, words});
  for (int64_t t = 0; t < tokens; ++t) hot.data<float>()[t * words + ids[size_t(t)]] = 1;
  return {"linear_cross_entropy", "matmul, softmax, two matmul",
          [=] { linear_cross_entropy(x, w, targets, true); },
          [=] {
            const Tensor dlogits = add_scaled(softmax(matmul(x, w.transpose(0, 1))), hot, -1);
            matmul(dlogits, w);
            matmul(dlogits.transpose(0, 1), x);
          }};
}

Pair attention_pair() {
  const int64_t S = 1024, heads = 8, D = 64;
  const Tensor q = uniform({1, S, heads, D}, "q"), k = uniform({1, S, heads, D}, "k"),
               v = uniform({1, S, heads, D}, "v");
  std::vector<int32_t> first(size_t(S), 0), behind;
  std::vector<float> causal(size_t(S * S), 0);
  for (int64_t i = 0; i < S; ++i) {
    behind.push_back(int32_t(i + 1));
    for (int64_t j = i + 1; j < S; ++j) causal[size_t(i * S + j)] = -1e30f;
  }
  const Tensor begin = Tensor::from(first).view({1, S}), end = Tensor::from(behind).view({1, S});
  const Tensor mask = Tensor::from(causal).view({S, S});
  const double factor = 1 / std::sqrt(double(D));
  return {"attention", "matmul, mask, softmax, matmul per head",
          [=] { attention(q, k, v, begin, end, factor); },
          [=] {
            for (int64_t h = 0; h < heads; ++h) {
              const auto head = [&](const Tensor& t) {
                return t.slice(2, h, h + 1).contiguous().view({S, D});
              };
              const Tensor scores = matmul(head(q), head(k).transpose(0, 1));
              matmul(softmax(add_scaled(mask, scores, factor)), head(v));
            }
          }};
}

Pair combine() {
  const int64_t tokens = 4096, k = 8, size = 512, experts = 64;
  std::vector<int32_t> chosen;
  const Random random(3, "experts");
  for (int64_t i = 0; i < tokens * k; ++i)
    chosen.push_back(int32_t((random.below(uint64_t(i / k), uint64_t(experts)) + uint64_t(i % k)) %
                             uint64_t(experts)));
  const SlotOrder order = sort_slots(Tensor::from(chosen).view({tokens, k}), experts);
  const Tensor rows = uniform({tokens * k, size}, "rows"),
               weights = uniform({tokens, k}, "weights");
  return {"combine_rows", "gather of each slot, weighted, added",
          [=] { combine_rows(rows, order.row_of_slot, weights); },
          [=] {
            const Tensor sum = Tensor::zeros({tokens, size});
            const Tensor slots = order.row_of_slot.view({tokens, k});
            for (int64_t j = 0; j < k; ++j) {
              const Tensor index = slots.slice(1, j, j + 1).contiguous().view({tokens});
              const Tensor weight = weights.slice(1, j, j + 1).contiguous().view({tokens});
              add_scaled_(sum, gather_rows(rows, index, weight), 1);
            }
          }};
}

Pair residual() {
  const int64_t tokens = 4096, size = 512;
  const Tensor x = uniform({tokens, size}, "x"), y = uniform({tokens, size}, "y"),
               w = uniform({size}, "w");
  const double eps = 1e-6, half = 0.5;
  return {"add_rms_norm", "addition, norm; their gradients, added and scaled",
          [=] {
            const AddRmsNorm forward = add_rms_norm(x, y, half, w, eps);
            add_rms_norm_backward(y, x, forward.sum, half, w, forward.norm.rstd);
          },
          [=] {
            const Tensor sum = add_scaled(x, y, half);
            const RmsNorm forward = rms_norm(sum, w, eps);
            const Tensor dx = rms_norm_backward(x, sum, w, forward.rstd).dx;
            add_scaled_(dx, y, 1);
            scale(dx, half);
          }};
}

}  // namespace

OptionTable operations_options() {
  OptionTable options("bench operations",
                      "Times fused operations against the same result composed of plain ones.");
  options.text("out", "", "FILE", "also write the JSON document to this file");
  return options;
}

int run_operations(const Arguments& arguments) {
  std::FILE* out = table_stream(arguments);
  std::fprintf(out, "%-22s %10s %10s %8s  %s\n", "operation", "fused", "composed", "ratio",
               "composed of");
  json::array results;
  for (const Pair& pair : {grouped_product(), loss(), attention_pair(), combine(), residual()}) {
    pair.fused();
    pair.composed();
    // In turn, so that a disturbance hits both.
    double fused = std::numeric_limits<double>::infinity(), composed = fused;
    for (int i = 0; i < 7; ++i) {
      fused = std::min(fused, seconds_of(pair.fused));
      composed = std::min(composed, seconds_of(pair.composed));
    }
    std::fprintf(out, "%-22s %8.1fms %8.1fms %7.2fx  %s\n", pair.name, 1e3 * fused, 1e3 * composed,
                 composed / fused, pair.plain);
    std::fflush(out);
    results.push_back(json::object{{"name", pair.name},
                                   {"fused_seconds", fused},
                                   {"composed_seconds", composed},
                                   {"ratio", composed / fused}});
  }
  finish(arguments, {{"operations", results}});
  return 0;
}

}  // namespace smelt
