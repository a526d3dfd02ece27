// Named parameters and their initial values.
//
// One parameter may hold several tensors of the checkpoint format (key and value projections side
// by side, all experts of a rank): its pieces. Each piece has the tensor's global name, so initial
// values and checkpoints do not depend on how parameters are stored or split over ranks.
#pragma once

#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

#include "autograd/variable.h"

namespace smelt {

/// A contiguous run of a parameter's elements that is one tensor of the checkpoint.
struct TensorPiece {
  std::string name;   // global, e.g. "model.layers.0.mlp.experts.5.up_proj.weight"
  int64_t begin = 0;  // first element within the parameter
  Shape shape;
};

enum class Init { normal, ones };

struct Parameter {
  std::string name;
  Variable value;
  Init init = Init::normal;
  double std = 0.02;    // of Init::normal
  bool decay = true;    // weight decay applies (not to norms and embeddings)
  bool expert = false;  // holds this rank's experts: reduced over ranks that hold the same ones
  std::vector<TensorPiece> pieces;

  /// This piece as a view of `flat`, any contiguous tensor with the parameter's elements (its data,
  /// its gradient, optimizer state).
  static Tensor view_piece(const Tensor& flat, const TensorPiece& piece);
};

/// Owns the parameters of a model, in the order in which they were added. Each is listed once
/// however often its layer runs.
class ParameterStore {
 public:
  ParameterStore(DType dtype, Device device) : dtype_(dtype), device_(device) {}

  /// Adds a parameter of this shape. Without pieces it is one tensor of its own name. Its values
  /// are undefined until initialize() or a checkpoint gives them: writing zeros first would cost as
  /// much as loading.
  /// @throws ConfigError for a name of a parameter or piece used twice, ShapeError for pieces that
  /// do not tile the parameter.
  Parameter& add(Parameter parameter, Shape shape);
  std::vector<Parameter*> all();
  std::vector<Variable> variables() const;
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  /// Elements of all parameters of this rank.
  int64_t numel() const;

  /// Fills every parameter from its pieces' names: element i of a piece is std * N(0, 1) drawn with
  /// Random(seed, piece name) at index i, whatever the dtype, ranks and threads.
  void initialize(uint64_t seed);

 private:
  DType dtype_;
  Device device_;
  std::deque<Parameter> parameters_;  // stable addresses
  std::unordered_set<std::string> piece_names_;
};

}  // namespace smelt
