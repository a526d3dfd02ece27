#include "autograd/variable.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "tensor/elementwise.h"
#include "tensor/profiler.h"

namespace smelt {

namespace graph {

/// What a node needs to know of one input.
struct Edge {
  std::shared_ptr<Node> node;  // producer, or
  std::shared_ptr<Meta> leaf;  // leaf that wants a gradient; neither: no gradient wanted
  size_t output = 0;
};

struct Gradient {
  Tensor value;
  bool owned = false;  // made by the sum here, so a further term may be added in place
};

struct Node {
  const char* name = "";
  const char* scope = ProfileScope::current();
  uint64_t number = 0;
  std::vector<Edge> inputs;
  std::vector<Gradient> grads;  // of the outputs, while backward runs
  BackwardFunction backward;
  bool walked = false;

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();

  static void add(Gradient& sum, const Tensor& term);
};

struct Meta {
  Tensor data;
  Tensor grad;
  bool requires_grad = false;
  std::shared_ptr<Node> node;
  size_t output = 0;
  std::function<void()> ready_hook;

  static const std::shared_ptr<Meta>& of(const Variable& v) { return v.meta_; }
  /// The buffer a leaf accumulates into, zeros at first.
  const Tensor& accumulator();
};

const Tensor& Meta::accumulator() {
  if (!grad.defined())
    grad = Tensor::zeros(data.shape(), {accumulation_dtype(data.dtype()), data.device()});
  return grad;
}

/// What a node dropped without backward() holds is freed from a list: freeing it in nested
/// destructors would overflow the stack on a long graph.
Node::~Node() {
  struct Remains {
    std::vector<Edge> inputs;
    BackwardFunction backward;
  };
  thread_local std::vector<Remains>* waiting = nullptr;
  if (inputs.empty() && !backward) return;
  if (waiting != nullptr) {
    waiting->push_back({std::move(inputs), std::move(backward)});
    return;
  }
  std::vector<Remains> list;
  list.push_back({std::move(inputs), std::move(backward)});
  waiting = &list;
  while (!list.empty()) {
    const Remains last = std::move(list.back());
    list.pop_back();
  }
  waiting = nullptr;
}

void Node::add(Gradient& sum, const Tensor& term) {
  if (!term.defined()) return;
  if (!sum.value.defined()) {
    sum.value = term;
  } else if (sum.owned) {
    add_scaled_(sum.value, term, 1.0);
  } else {  // the first term may be shared with another input: it must not change
    sum.value = add_scaled(sum.value, term.to(sum.value.dtype()), 1.0);
    sum.owned = true;
  }
}

}  // namespace graph

namespace {

thread_local bool recording = true;
thread_local int backward_depth = 0;  // above 1 inside checkpoint(): leaves are not complete yet
thread_local bool second_run = false;
std::atomic<uint64_t> next_number{1};

}  // namespace

Variable::Variable(Tensor data, bool requires_grad) : meta_(std::make_shared<graph::Meta>()) {
  check_defined("Variable", "data", data);
  SMELT_CHECK(DTypeError, !requires_grad || is_floating(data.dtype()),
              "Variable: a " << name_of(data.dtype()) << " tensor has no gradient");
  meta_->data = std::move(data);
  meta_->requires_grad = requires_grad;
}

const Tensor& Variable::data() const {
  SMELT_CHECK(Error, defined(), "Variable: undefined");
  return meta_->data;
}

bool Variable::requires_grad() const { return defined() && meta_->requires_grad; }
bool Variable::is_leaf() const { return defined() && meta_->node == nullptr; }

const Tensor& Variable::grad() const {
  SMELT_CHECK(Error, is_leaf(), "grad: only leaves keep a gradient");
  return meta_->grad;
}

void Variable::set_grad(Tensor buffer) const {
  SMELT_CHECK(Error, is_leaf() && requires_grad(),
              "set_grad: needs a leaf that requires a gradient");
  check_shape("set_grad", "buffer", buffer, data().shape());
  check_dtype("set_grad", "buffer", buffer, accumulation_dtype(dtype()));
  SMELT_CHECK(ShapeError, buffer.is_contiguous(),
              "set_grad: buffer of shape " << to_string(buffer.shape()) << " must be contiguous");
  meta_->grad = std::move(buffer);
}

void Variable::set_data(Tensor data) const {
  SMELT_CHECK(Error, is_leaf(), "set_data: needs a leaf");
  check_shape("set_data", "data", data, meta_->data.shape());
  check_dtype("set_data", "data", data, meta_->data.dtype());
  meta_->data = std::move(data);
}

void Variable::set_ready_hook(std::function<void()> hook) const {
  SMELT_CHECK(Error, is_leaf() && requires_grad(),
              "set_ready_hook: needs a leaf that requires a gradient");
  meta_->ready_hook = std::move(hook);
}

std::vector<Variable> record(const char* name, const std::vector<Tensor>& outputs,
                             const std::vector<Variable>& inputs, BackwardFunction backward) {
  std::vector<Variable> results;
  results.reserve(outputs.size());
  for (const Tensor& output : outputs) results.emplace_back(output);
  const bool wanted = recording && std::any_of(inputs.begin(), inputs.end(),
                                               [](const Variable& v) { return v.requires_grad(); });
  if (!wanted) return results;
  auto node = std::make_shared<graph::Node>();
  node->name = name;
  node->number = next_number++;
  node->backward = std::move(backward);
  node->grads.resize(outputs.size());
  for (const Variable& input : inputs) {
    graph::Edge edge;
    if (input.requires_grad()) {
      edge.node = input.meta_->node;
      edge.output = input.meta_->output;
      if (!edge.node) edge.leaf = input.meta_;
    }
    node->inputs.push_back(std::move(edge));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_floating(results[i].dtype())) continue;
    results[i].meta_->requires_grad = true;
    results[i].meta_->node = node;
    results[i].meta_->output = i;
  }
  return results;
}

Variable record(const char* name, const Tensor& output, const std::vector<Variable>& inputs,
                BackwardFunction backward) {
  return record(name, std::vector<Tensor>{output}, inputs, std::move(backward))[0];
}

void backward(const Variable& root, double seed) {
  SMELT_CHECK(ShapeError, root.data().numel() == 1,
              "backward: root must have one element, shape is " << to_string(root.shape()));
  backward({root}, {Tensor::full(root.shape(), seed, root.data().options())});
}

void backward(const std::vector<Variable>& roots, const std::vector<Tensor>& grads) {
  SMELT_CHECK(Error, roots.size() == grads.size(),
              "backward: " << roots.size() << " roots, " << grads.size() << " gradients");
  using graph::Meta;
  using graph::Node;
  std::vector<std::shared_ptr<Node>> order;
  std::unordered_set<Node*> seen;
  std::unordered_map<Meta*, int64_t> uses;  // of each leaf, still to come
  const auto visit = [&](const std::shared_ptr<Node>& node) {
    SMELT_CHECK(Error, !node->walked,
                "backward: the graph of '" << node->name << "' was walked before and is released");
    if (seen.insert(node.get()).second) order.push_back(node);
  };
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].requires_grad()) continue;
    if (grads[i].defined()) check_shape("backward", "gradient", grads[i], roots[i].shape());
    if (roots[i].meta_->node) {
      visit(roots[i].meta_->node);
    } else {
      ++uses[roots[i].meta_.get()];
    }
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const graph::Edge& edge : order[i]->inputs) {
      if (edge.leaf) ++uses[edge.leaf.get()];
      if (edge.node) visit(edge.node);
    }
  }
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a->number > b->number; });

  struct Depth {
    Depth() { ++backward_depth; }
    ~Depth() { --backward_depth; }
  } depth;
  const auto count_use = [&](Meta& leaf) {
    if (--uses[&leaf] == 0 && backward_depth == 1 && leaf.ready_hook) leaf.ready_hook();
  };
  // Only now, after all checks: a refused call leaves every gradient as it was.
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].requires_grad()) continue;
    Meta& root = *roots[i].meta_;
    if (root.node) {
      Node::add(root.node->grads[root.output], grads[i]);
    } else {
      if (grads[i].defined()) add_scaled_(root.accumulator(), grads[i], 1.0);
      count_use(root);
    }
  }
  for (std::shared_ptr<Node>& node : order) {
    std::vector<Tensor> outputs;
    bool any = false;
    for (graph::Gradient& gradient : node->grads) {
      any = any || gradient.value.defined();
      outputs.push_back(std::move(gradient.value));
    }
    node->grads.clear();
    std::vector<Tensor> inputs(node->inputs.size());
    if (any) {
      const ProfileScope scope(node->scope, true);
      inputs = node->backward(outputs);
      SMELT_CHECK(Error, inputs.size() == node->inputs.size(),
                  "backward: '" << node->name << "' returned " << inputs.size() << " gradients for "
                                << node->inputs.size() << " inputs");
    }
    outputs.clear();
    node->backward = nullptr;  // frees the saved tensors
    node->walked = true;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const graph::Edge& edge = node->inputs[i];
      if (edge.node) Node::add(edge.node->grads[edge.output], inputs[i]);
      if (!edge.leaf) continue;
      if (inputs[i].defined()) add_scaled_(edge.leaf->accumulator(), inputs[i], 1.0);
      count_use(*edge.leaf);
    }
    node->inputs.clear();
    node.reset();
  }
}

GradSink::GradSink(const Variable& input) {
  if (input.is_leaf() && input.requires_grad()) {
    buffer_ = input.meta_->accumulator();
    direct_ = true;
  } else {
    buffer_ =
        Tensor::zeros(input.shape(), {accumulation_dtype(input.dtype()), input.data().device()});
  }
}

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : before_(recording) { recording = false; }
NoGrad::~NoGrad() { recording = before_; }

bool recomputing() { return second_run; }

std::vector<Variable> checkpoint(const Function& f, const std::vector<Variable>& inputs,
                                 const std::vector<Variable>& parameters) {
  if (!recording) return f(inputs);
  std::vector<Tensor> outputs;
  {
    const NoGrad no_grad;
    for (const Variable& output : f(inputs)) outputs.push_back(output.data());
  }
  std::vector<Variable> edges = inputs;
  edges.insert(edges.end(), parameters.begin(), parameters.end());
  std::vector<Variable> plain;
  std::vector<bool> wanted;
  for (const Variable& input : inputs) {
    // A leaf takes its gradients itself, in the precision and order of the plain graph.
    plain.push_back(input.is_leaf() ? input : input.detach());
    wanted.push_back(input.requires_grad() && !input.is_leaf());
  }
  const size_t num_edges = edges.size();
  return record("checkpoint", outputs, edges,
                [f, plain, wanted, num_edges](const std::vector<Tensor>& grads) {
                  std::vector<Tensor> result(num_edges);
                  std::vector<Variable> again;
                  struct SecondRun {
                    bool run_before = second_run;
                    bool recording_before = recording;
                    SecondRun() { second_run = recording = true; }
                    ~SecondRun() {
                      second_run = run_before;
                      recording = recording_before;
                    }
                  } second;
                  // Identity nodes collect the gradients of the inputs as they are, in their own
                  // dtype.
                  for (size_t i = 0; i < plain.size(); ++i) {
                    if (!wanted[i]) {
                      again.push_back(plain[i]);
                      continue;
                    }
                    const Variable gate(Tensor::empty({0}), true);
                    again.push_back(record("checkpoint_input", plain[i].data(), {gate},
                                           [&result, i](const std::vector<Tensor>& g) {
                                             result[i] = g[0];
                                             return std::vector<Tensor>(1);
                                           }));
                  }
                  backward(f(again), grads);
                  return result;
                });
}

}  // namespace smelt
