// The small modules: a parameter each and the function that uses it.
#pragma once

#include <string>

#include "nn/parameter.h"

namespace smelt {

/// y = x W^T, no bias. Weight [out, in] named `name`.
class Linear {
 public:
  Linear(ParameterStore& store, const std::string& name, int64_t in, int64_t out, double std);
  /// The same with the weight made of several checkpoint tensors below each other: (name, rows).
  Linear(ParameterStore& store, const std::string& name, int64_t in,
         const std::vector<std::pair<std::string, int64_t>>& parts, double std);
  /// x [T, in] -> [T, out]
  Variable operator()(const Variable& x) const;
  const Variable& weight() const { return weight_->value; }

 private:
  Parameter* weight_;
};

/// Rows of a table: ids [T] i32 -> [T, hidden]. No weight decay.
class Embedding {
 public:
  Embedding(ParameterStore& store, const std::string& name, int64_t vocab_size, int64_t hidden_size,
            double std);
  Variable operator()(const Tensor& ids) const;
  const Variable& weight() const { return table_->value; }

 private:
  Parameter* table_;
};

/// RMSNorm with a learned gain [size], initially 1. No weight decay.
class RmsNormModule {
 public:
  RmsNormModule(ParameterStore& store, const std::string& name, int64_t size, double eps);
  /// x [..., size]
  Variable operator()(const Variable& x) const;
  /// {x + alpha * branch, its norm}: the residual addition in the same pass.
  std::vector<Variable> add(const Variable& x, const Variable& branch, double alpha) const;

 private:
  Parameter* weight_;
  double eps_;
};

/// Dense SwiGLU feed-forward: down(silu(gate x) * up x).
class SwigluMlp {
 public:
  SwigluMlp(ParameterStore& store, const std::string& prefix, int64_t hidden_size,
            int64_t ffn_hidden_size, double std);
  Variable operator()(const Variable& x) const;

 private:
  Linear gate_up_;
  Linear down_;
};

}  // namespace smelt
