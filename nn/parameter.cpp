#include "nn/parameter.h"

#include <algorithm>

#include "tensor/rng.h"

namespace smelt {

Tensor Parameter::view_piece(const Tensor& flat, const TensorPiece& piece) {
  return flat.view({-1})
      .slice(0, piece.begin, piece.begin + numel_of(piece.shape))
      .view(piece.shape);
}

Parameter& ParameterStore::add(Parameter parameter, Shape shape) {
  for (const Parameter& other : parameters_) {
    SMELT_CHECK(ConfigError, other.name != parameter.name,
                "parameter '" << parameter.name << "' exists already");
  }
  if (parameter.pieces.empty()) parameter.pieces.push_back({parameter.name, 0, shape});
  int64_t end = 0;
  std::unordered_set<std::string> names;
  for (const TensorPiece& piece : parameter.pieces) {
    SMELT_CHECK(
        ConfigError, !piece_names_.contains(piece.name) && names.insert(piece.name).second,
        "parameter '" << parameter.name << "': piece '" << piece.name << "' exists already");
    SMELT_CHECK(ShapeError, piece.begin == end,
                "parameter '" << parameter.name << "': piece '" << piece.name << "' begins at "
                              << piece.begin << ", not " << end);
    end += numel_of(piece.shape);
  }
  SMELT_CHECK(ShapeError, end == numel_of(shape),
              "parameter '" << parameter.name << "': pieces hold " << end << " elements, shape is "
                            << to_string(shape));
  parameter.value = Variable(Tensor::empty(std::move(shape), {dtype_, device_}), true);
  piece_names_.merge(names);
  parameters_.push_back(std::move(parameter));
  return parameters_.back();
}

std::vector<Parameter*> ParameterStore::all() {
  std::vector<Parameter*> result;
  for (Parameter& parameter : parameters_) result.push_back(&parameter);
  return result;
}

std::vector<Variable> ParameterStore::variables() const {
  std::vector<Variable> result;
  for (const Parameter& parameter : parameters_) result.push_back(parameter.value);
  return result;
}

int64_t ParameterStore::numel() const {
  int64_t n = 0;
  for (const Parameter& parameter : parameters_) n += parameter.value.data().numel();
  return n;
}

void ParameterStore::initialize(uint64_t seed) {
  for (Parameter& parameter : parameters_) {
    if (parameter.init == Init::ones) {
      parameter.value.data().fill_(1);
      continue;
    }
    for (const TensorPiece& piece : parameter.pieces) {
      const Random random(seed, piece.name);
      const Tensor host = Tensor::empty(piece.shape, {accumulation_dtype(dtype_), {}});
      const int64_t n = host.numel();
      dispatch_float(host.dtype(), "initialize", [&](auto tag) {
        using T = acc_t<decltype(tag)>;
        T* values = static_cast<T*>(host.raw());
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n; ++i) values[i] = T(parameter.std * random.normal(uint64_t(i)));
      });
      Parameter::view_piece(parameter.value.data(), piece).copy_(host.to(device_));
    }
  }
}

}  // namespace smelt
