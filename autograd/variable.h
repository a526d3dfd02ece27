// Variable: a tensor with its place in the dynamic graph, and backward over that graph.
//
// Differentiable functions (the other headers of this folder) compute with tensor operations and
// record a node that knows the gradient. Nodes are numbered as they are created and every node only
// uses older ones, so descending number is a topological order. backward() walks it once, frees
// what a node saved as soon as it has run, and refuses a second walk over the same graph.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace smelt {

namespace graph {
struct Node;
struct Meta;
}  // namespace graph

class Variable {
 public:
  Variable() = default;
  /// A leaf. With requires_grad, backward() accumulates its gradient in f32 (f64 for f64).
  explicit Variable(Tensor data, bool requires_grad = false);

  bool defined() const { return meta_ != nullptr; }
  const Tensor& data() const;
  const Shape& shape() const { return data().shape(); }
  int64_t dim(int64_t d) const { return data().dim(d); }
  DType dtype() const { return data().dtype(); }
  bool requires_grad() const;
  bool is_leaf() const;

  /// Accumulated gradient of a leaf; undefined before the first backward.
  const Tensor& grad() const;
  /// Lets backward accumulate into `buffer` (f32, or f64 for f64; same shape), e.g. a view of one
  /// flat buffer of all gradients. Contents are kept: zero it for a new step.
  void set_grad(Tensor buffer) const;
  /// Replaces the data of a leaf by a tensor of the same shape and dtype.
  void set_data(Tensor data) const;
  /// Called once per backward() when this leaf's gradient is complete: after all its uses, however
  /// many visits or recomputed blocks they come from. Also called when the gradient is zero.
  void set_ready_hook(std::function<void()> hook) const;

  /// The same data outside the graph.
  Variable detach() const { return Variable(data()); }
  double item() const { return data().item(); }
  /// Identity of the leaf: equal for copies of one Variable.
  const void* id() const { return meta_.get(); }

 private:
  friend struct graph::Node;
  friend struct graph::Meta;
  friend class GradSink;
  friend std::vector<Variable> record(
      const char*, const std::vector<Tensor>&, const std::vector<Variable>&,
      std::function<std::vector<Tensor>(const std::vector<Tensor>&)>);
  friend void backward(const std::vector<Variable>&, const std::vector<Tensor>&);
  std::shared_ptr<graph::Meta> meta_;
};

/// Gradients of a node's inputs from those of its outputs, in order. An undefined tensor is zero,
/// on both sides. Gradients given may be views with any strides.
using BackwardFunction =
    std::function<std::vector<Tensor>(const std::vector<Tensor>& grad_outputs)>;

/// Makes the outputs of a differentiable function. Without gradient mode, or when no input requires
/// a gradient, `backward` is dropped at once and the outputs are plain leaves.
std::vector<Variable> record(const char* name, const std::vector<Tensor>& outputs,
                             const std::vector<Variable>& inputs, BackwardFunction backward);
Variable record(const char* name, const Tensor& output, const std::vector<Variable>& inputs,
                BackwardFunction backward);

/// Runs the graph backward from one [1] root with gradient `seed`.
void backward(const Variable& root, double seed = 1.0);
/// The same from several roots; an undefined gradient contributes nothing.
/// @throws Error when a part of the graph has been walked before.
void backward(const std::vector<Variable>& roots, const std::vector<Tensor>& grads);

/// Where a backward function accumulates the gradient of one input: straight into a leaf's buffer,
/// so that a product can add to it, else into a fresh zero buffer that result() hands on.
class GradSink {
 public:
  explicit GradSink(const Variable& input);
  const Tensor& buffer() const { return buffer_; }
  /// What the backward function returns for this input.
  Tensor result() const { return direct_ ? Tensor() : buffer_; }

 private:
  Tensor buffer_;
  bool direct_ = false;
};

/// Whether functions record nodes on this thread.
bool grad_enabled();
/// Switches recording off for its lifetime.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

using Function = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

/// Recomputation (Chen et al., 2016): runs f without recording and keeps only its inputs; backward
/// runs f again with recording and continues through it. `parameters` are the leaves that f uses
/// besides its inputs: they are complete only when this node has run.
std::vector<Variable> checkpoint(const Function& f, const std::vector<Variable>& inputs,
                                 const std::vector<Variable>& parameters);
/// True while checkpoint() runs a function for the second time: statistics must not count it again.
bool recomputing();

}  // namespace smelt
