#include "tensor/tensor.h"

#include <ostream>

#include "tensor/allocator.h"
#include "tensor/kernels/copy.h"

namespace smelt {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

std::ostream& operator<<(std::ostream& out, Device device) {
  if (device.is_cpu()) return out << "cpu";
  return out << "cuda:" << device.index;
}

bool built_with_cuda() {
#ifdef SMELT_CUDA
  return true;
#else
  return false;
#endif
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

int64_t numel_of(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) {
    SMELT_CHECK(ShapeError, d >= 0, "shape " << to_string(shape) << " has a negative dimension");
    SMELT_CHECK(ShapeError, !__builtin_mul_overflow(n, d, &n),
                "shape " << to_string(shape) << " has more than 2^63 elements");
  }
  return n;
}

int64_t checked_offset(int64_t row, int64_t stride, int64_t column) {
  int64_t offset = 0;
  SMELT_CHECK(ShapeError,
              !__builtin_mul_overflow(row, stride, &offset) &&
                  !__builtin_add_overflow(offset, column, &offset),
              "offset of row " << row << " with stride " << stride << " does not fit 64 bits");
  return offset;
}

struct Tensor::Storage {
  Storage(int64_t bytes_, Device device_) : bytes(size_t(bytes_)), device(device_) {
    data = allocator(device).allocate(bytes);
  }
  ~Storage() { allocator(device).release(data, bytes); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  void* data = nullptr;
  size_t bytes;
  Device device;
};

namespace {

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

}  // namespace

Tensor Tensor::empty(Shape shape, TensorOptions options) {
  Tensor t;
  t.numel_ = numel_of(shape);
  int64_t bytes = 0;
  SMELT_CHECK(ShapeError, !__builtin_mul_overflow(t.numel_, size_of(options.dtype), &bytes),
              "shape " << to_string(shape) << " has more than 2^63 bytes");
  t.storage_ = std::make_shared<Storage>(bytes, options.device);
  t.strides_ = contiguous_strides(shape);
  t.shape_ = std::move(shape);
  t.dtype_ = options.dtype;
  t.device_ = options.device;
  return t;
}

Tensor Tensor::zeros(Shape shape, TensorOptions options) {
  return full(std::move(shape), 0, options);
}

Tensor Tensor::full(Shape shape, double value, TensorOptions options) {
  const Tensor t = empty(std::move(shape), options);
  t.fill_(value);
  return t;
}

template <typename T>
Tensor Tensor::from(const std::vector<T>& values, Shape shape) {
  const Tensor t = empty(std::move(shape), {dtype_of<T>::value, {}});
  SMELT_CHECK(ShapeError, t.numel() == int64_t(values.size()),
              "from: " << values.size() << " values do not fill shape " << to_string(t.shape()));
  std::copy(values.begin(), values.end(), t.data<T>());
  return t;
}

template <typename T>
std::vector<T> Tensor::to_vector() const {
  check_defined("to_vector", "tensor", *this);
  const Tensor host = to(Device{}).contiguous();
  const T* p = host.data<T>();
  return std::vector<T>(p, p + numel_);
}

#define SMELT_INSTANTIATE(T)                                  \
  template Tensor Tensor::from(const std::vector<T>&, Shape); \
  template std::vector<T> Tensor::to_vector<T>() const;
SMELT_INSTANTIATE(float)
SMELT_INSTANTIATE(bf16)
SMELT_INSTANTIATE(double)
SMELT_INSTANTIATE(int32_t)
SMELT_INSTANTIATE(int64_t)
#undef SMELT_INSTANTIATE

int64_t Tensor::axis(int64_t d) const {
  const int64_t a = d < 0 ? d + rank() : d;
  SMELT_CHECK(ShapeError, a >= 0 && a < rank(),
              "dimension " << d << " is outside shape " << to_string(shape_));
  return a;
}

void* Tensor::raw() const {
  if (!storage_ || storage_->data == nullptr) return nullptr;
  return static_cast<char*>(storage_->data) + offset_ * size_of(dtype_);
}

bool Tensor::is_contiguous() const {
  int64_t stride = 1;
  for (size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] != 1 && strides_[i] != stride) return numel_ == 0;
    stride *= shape_[i];
  }
  return true;
}

Tensor Tensor::view(Shape shape) const {
  check_defined("view", "tensor", *this);
  SMELT_CHECK(ShapeError, is_contiguous(),
              "view: tensor of shape " << to_string(shape_) << " is not contiguous");
  int64_t known = 1;
  int64_t* free = nullptr;
  for (int64_t& d : shape) {
    if (d == -1 && free == nullptr) {
      free = &d;
    } else {
      known *= d;
    }
  }
  if (free != nullptr) *free = known == 0 ? 0 : numel_ / known;
  SMELT_CHECK(
      ShapeError, numel_of(shape) == numel_,
      "view: shape " << to_string(shape) << " does not hold the elements of " << to_string(shape_));
  Tensor t = *this;
  t.strides_ = contiguous_strides(shape);
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::transpose(int64_t d0, int64_t d1) const {
  check_defined("transpose", "tensor", *this);
  Tensor t = *this;
  std::swap(t.shape_[size_t(axis(d0))], t.shape_[size_t(axis(d1))]);
  std::swap(t.strides_[size_t(axis(d0))], t.strides_[size_t(axis(d1))]);
  return t;
}

Tensor Tensor::slice(int64_t d, int64_t begin, int64_t end) const {
  check_defined("slice", "tensor", *this);
  const auto a = size_t(axis(d));
  SMELT_CHECK(ShapeError, 0 <= begin && begin <= end && end <= shape_[a],
              "slice: [" << begin << ", " << end << ") is outside dimension " << d << " of "
                         << to_string(shape_));
  Tensor t = *this;
  t.shape_[a] = end - begin;
  t.numel_ = numel_of(t.shape_);
  if (t.numel_ > 0) t.offset_ += begin * strides_[a];
  return t;
}

Tensor Tensor::expand(Shape shape) const {
  check_defined("expand", "tensor", *this);
  bool fits = shape.size() == shape_.size();
  Tensor t = *this;
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    if (shape[i] != shape_[i]) {
      fits = shape_[i] == 1;
      t.strides_[i] = 0;
    }
  }
  SMELT_CHECK(ShapeError, fits,
              "expand: " << to_string(shape_) << " does not expand to " << to_string(shape));
  t.numel_ = numel_of(shape);
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  check_defined("clone", "tensor", *this);
  const Tensor t = empty(shape_, options());
  t.copy_(*this);
  return t;
}

Tensor Tensor::to(DType dtype) const {
  check_defined("to", "tensor", *this);
  if (dtype == dtype_) return *this;
  const Tensor t = empty(shape_, {dtype, device_});
  t.copy_(*this);
  return t;
}

Tensor Tensor::to(Device device) const {
  check_defined("to", "tensor", *this);
  SMELT_CHECK(DeviceError, device == device_,
              "to: cannot move from " << device_ << " to " << device << " in this build");
  return *this;
}

const Tensor& Tensor::fill_(double value) const {
  check_defined("fill_", "tensor", *this);
  if (numel_ > 0) SMELT_DISPATCH(device_, strided_fill, *this, value);
  return *this;
}

const Tensor& Tensor::copy_(const Tensor& source) const {
  check_defined("copy_", "target", *this);
  check_defined("copy_", "source", source);
  check_same_shape("copy_", *this, source);
  SMELT_CHECK(DeviceError, device_ == source.device_,
              "copy_: source is on " << source.device_ << ", target on " << device_);
  if (numel_ > 0) SMELT_DISPATCH(device_, strided_copy, source, *this);
  return *this;
}

double Tensor::item() const {
  SMELT_CHECK(ShapeError, defined() && numel_ == 1,
              "item: needs one element, shape is " << to_string(shape_));
  return dispatch_any(dtype_, [&](auto tag) { return double(to_vector<decltype(tag)>()[0]); });
}

void check_defined(const char* op, const char* name, const Tensor& x) {
  SMELT_CHECK(ShapeError, x.defined(), op << ": " << name << " is an undefined tensor");
}

void check_rank(const char* op, const char* name, const Tensor& x, int64_t rank) {
  check_defined(op, name, x);
  SMELT_CHECK(ShapeError, x.rank() == rank,
              op << ": " << name << " must have " << rank << " dimensions, shape is "
                 << to_string(x.shape()));
}

void check_same_shape(const char* op, const Tensor& x, const Tensor& y) {
  SMELT_CHECK(ShapeError, x.shape() == y.shape(),
              op << ": shapes differ: " << to_string(x.shape()) << " and " << to_string(y.shape()));
}

void check_shape(const char* op, const char* name, const Tensor& x, const Shape& shape) {
  check_defined(op, name, x);
  SMELT_CHECK(ShapeError, x.shape() == shape,
              op << ": " << name << " must be " << to_string(shape) << ", shape is "
                 << to_string(x.shape()));
}

void check_dtype(const char* op, const char* name, const Tensor& x, DType dtype) {
  check_defined(op, name, x);
  SMELT_CHECK(DTypeError, x.dtype() == dtype,
              op << ": " << name << " must be " << name_of(dtype) << ", is " << name_of(x.dtype()));
}

void check_same_options(const char* op, const Tensor& x, const Tensor& y) {
  SMELT_CHECK(DTypeError, x.dtype() == y.dtype(),
              op << ": dtypes differ: " << name_of(x.dtype()) << " " << to_string(x.shape())
                 << " and " << name_of(y.dtype()) << " " << to_string(y.shape()));
  SMELT_CHECK(DeviceError, x.device() == y.device(),
              op << ": devices differ: " << x.device() << " and " << y.device());
}

}  // namespace smelt
