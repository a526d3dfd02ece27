// Tensor: a typed, strided view of reference-counted storage on one device. Copying a Tensor copies
// the view, never the data. Operations are free functions in the other headers of this folder; each
// is declared once and runs on the device of its arguments.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tensor/device.h"
#include "tensor/dtype.h"

namespace smelt {

using Shape = std::vector<int64_t>;

/// "[2, 3]", as used in every shape error.
std::string to_string(const Shape& shape);
/// Product of the dimensions; throws ShapeError on a negative dimension or 64-bit overflow.
int64_t numel_of(const Shape& shape);
/// Element offset row * stride + column in 64 bits; throws ShapeError when that overflows.
int64_t checked_offset(int64_t row, int64_t stride, int64_t column);

struct TensorOptions {
  DType dtype = DType::f32;
  Device device = {};
};

class Tensor {
 public:
  /// An undefined tensor; in gradients it stands for zero.
  Tensor() = default;

  /// Uninitialised contiguous tensor.
  static Tensor empty(Shape shape, TensorOptions options = {});
  static Tensor zeros(Shape shape, TensorOptions options = {});
  static Tensor full(Shape shape, double value, TensorOptions options = {});
  /// Contiguous CPU tensor holding `values` in row-major order; throws ShapeError if counts differ.
  template <typename T>
  static Tensor from(const std::vector<T>& values, Shape shape);
  template <typename T>
  static Tensor from(const std::vector<T>& values) {
    return from(values, {int64_t(values.size())});
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  int64_t rank() const { return int64_t(shape_.size()); }
  /// Size of dimension `d`; negative counts from the end.
  int64_t dim(int64_t d) const { return shape_[size_t(axis(d))]; }
  int64_t numel() const { return numel_; }
  int64_t bytes() const { return numel_ * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  TensorOptions options() const { return {dtype_, device_}; }
  bool is_contiguous() const;
  bool shares_storage_with(const Tensor& other) const { return storage_ == other.storage_; }

  /// First element. The typed form throws DTypeError unless T is the dtype.
  template <typename T>
  T* data() const {
    SMELT_CHECK(
        DTypeError, dtype_of<T>::value == dtype_,
        "data: tensor is " << name_of(dtype_) << ", asked as " << name_of(dtype_of<T>::value));
    return static_cast<T*>(raw());
  }
  void* raw() const;

  // Views: share storage. All throw ShapeError when the arguments do not fit.
  /// Same elements in another shape; one dimension may be -1. Needs a contiguous tensor.
  Tensor view(Shape shape) const;
  /// view() of contiguous().
  Tensor reshape(Shape shape) const { return contiguous().view(std::move(shape)); }
  Tensor transpose(int64_t d0, int64_t d1) const;
  /// Elements [begin, end) along dimension d.
  Tensor slice(int64_t d, int64_t begin, int64_t end) const;
  /// Repeats dimensions of size 1 up to `shape` with stride 0.
  Tensor expand(Shape shape) const;

  /// This tensor if contiguous, else a contiguous copy.
  Tensor contiguous() const;
  Tensor clone() const;
  /// Converted copy (this tensor itself when dtype and device already fit).
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;

  /// In place, any strides. Return *this.
  const Tensor& fill_(double value) const;
  const Tensor& zero_() const { return fill_(0); }
  /// Copies values from a tensor of the same shape, converting dtype.
  const Tensor& copy_(const Tensor& source) const;

  /// The only element, as double; throws ShapeError unless numel() == 1.
  double item() const;
  /// All elements in row-major order; throws DTypeError unless T is the dtype.
  template <typename T>
  std::vector<T> to_vector() const;

 private:
  int64_t axis(int64_t d) const;

  struct Storage;
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // elements
  Shape shape_;
  Shape strides_;  // elements
  int64_t numel_ = 0;
  DType dtype_ = DType::f32;
  Device device_;
};

// Checks shared by the operations; each message begins with `op`.
void check_defined(const char* op, const char* name, const Tensor& x);
void check_rank(const char* op, const char* name, const Tensor& x, int64_t rank);
void check_same_shape(const char* op, const Tensor& x, const Tensor& y);
void check_dtype(const char* op, const char* name, const Tensor& x, DType dtype);
/// Same dtype and device.
void check_same_options(const char* op, const Tensor& x, const Tensor& y);
/// x must have exactly this shape.
void check_shape(const char* op, const char* name, const Tensor& x, const Shape& shape);

}  // namespace smelt
