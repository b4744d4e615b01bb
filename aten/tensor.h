// Tensor: the handle that everybody passes around, one pointer wide. Copying it shares the tensor; an
// undefined tensor (default constructed) stands for an absent optional one. Operators are methods, declared here and
// generated from the op table, and free functions, each in the header of its family: functions_<family>.h, or all in
// functions.h. A file includes what it calls, so that a new row compiles few files again.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "tapegrad/c10/tensor/scalar.h"
#include "tapegrad/c10/tensor/tensor_impl.h"

namespace tapegrad {

class Generator;
class Operand;
class Tensor;
namespace autograd {
struct Node;
}

using TensorSpan = std::span<const Tensor>;
using OptionalInts = std::optional<IntSpan>;
using GeneratorPtr = intrusive_ptr<Generator>;

class TG_API Tensor {
 public:
  Tensor() = default;
  explicit Tensor(intrusive_ptr<TensorImpl> impl) noexcept : impl_(std::move(impl)) {}

  bool defined() const noexcept { return static_cast<bool>(impl_); }
  explicit operator bool() const noexcept = delete;  // ask `defined()` or `item()`
  TensorImpl* impl() const noexcept { return impl_.get(); }
  const intrusive_ptr<TensorImpl>& ptr() const noexcept { return impl_; }
  bool is_same(const Tensor& o) const noexcept { return impl_ == o.impl_; }
  void reset() noexcept { impl_.reset(); }

  int ndim() const noexcept { return impl_->ndim(); }
  int64_t dim() const noexcept { return impl_->ndim(); }
  int64_t numel() const noexcept { return impl_->numel(); }
  IntSpan sizes() const noexcept { return impl_->sizes(); }
  IntSpan strides() const noexcept { return impl_->strides(); }
  int64_t size(int64_t d) const;    // negative d counts from the end; raises Index
  int64_t stride(int64_t d) const;  // likewise
  int64_t storage_offset() const noexcept { return impl_->offset(); }
  DType dtype() const noexcept { return impl_->dtype(); }
  Device device() const noexcept { return impl_->device(); }
  bool is_cpu() const noexcept { return device().is_cpu(); }
  bool is_cuda() const noexcept { return device().is_cuda(); }
  bool is_meta() const noexcept { return device().is_meta(); }
  bool is_sparse() const noexcept { return device().is_sparse(); }
  bool is_batched() const noexcept { return device().is_batched(); }
  size_t itemsize() const noexcept { return impl_->itemsize(); }
  int64_t nbytes() const noexcept { return numel() * static_cast<int64_t>(itemsize()); }
  bool is_contiguous() const noexcept { return impl_->is_contiguous(); }
  bool is_contiguous(MemoryFormat format) const noexcept { return impl_->is_contiguous(format); }
  bool is_floating_point() const noexcept { return tapegrad::is_floating_point(dtype()) || is_float8(dtype()); }
  bool is_complex() const noexcept { return tapegrad::is_complex(dtype()); }
  bool is_wrapped_number() const noexcept { return impl_->is_wrapped_number(); }
  uint32_t version() const noexcept { return impl_->version(); }

  void* data_ptr() const noexcept { return impl_->data(); }
  // The typed address; raises Runtime when T is not the dtype.
  template <class T>
  T* data() const {
    TG_CHECK(!is_batched(), Runtime, "data: a tensor that vmap maps over has no values of its own");
    TG_CHECK(dtype() == dtype_of_v<T>, Runtime, "data: expected a tensor of dtype {}: got {}", dtype_of_v<T>, dtype());
    return static_cast<T*>(data_ptr());
  }

  // The one element of a tensor with one element; raises Runtime otherwise.
  Scalar item() const;
  template <class T>
  T item() const {
    return item().to<T>();
  }

  // The tape's, which is a layer above: aten/autograd_interface.h. grad_fn is defined with what it returns, in
  // autograd/meta.h.
  bool requires_grad() const noexcept { return impl_->needs_grad(); }
  const Tensor& set_requires_grad(bool value = true) const;
  bool is_leaf() const noexcept;
  Tensor grad() const;  // undefined when there is none
  void set_grad(const Tensor& grad) const;
  intrusive_ptr<autograd::Node> grad_fn() const;
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false) const;
  void retain_grad() const;
  // A tensor of the same storage that the tape does not know. `detach` shares the version counter, so that
  // writes are noticed; `data_alias` (Python's `.data`) does not.
  Tensor detach() const;
  Tensor data_alias() const;

  // Generated from the op table: one method per row with the variant "method" or "inplace".
#include "tapegrad/aten/tensor_methods.inc"

 private:
  intrusive_ptr<TensorImpl> impl_;
};

// An operand that may be written as a number: `add(x, 2)`, `x * 0.5`. The number becomes a zero-dimensional
// tensor that takes part in type promotion only by its category.
class TG_API Operand {
 public:
  Operand(const Tensor& t) : tensor_(t) {}
  Operand(Tensor&& t) : tensor_(std::move(t)) {}
  Operand(const Scalar& s) : tensor_(wrap(s)) {}
  template <class T>
    requires(std::is_arithmetic_v<T>)
  Operand(T value) : tensor_(wrap(Scalar(value))) {}
  operator const Tensor&() const noexcept { return tensor_; }
  const Tensor& tensor() const noexcept { return tensor_; }

 private:
  static Tensor wrap(const Scalar& s);
  Tensor tensor_;
};

// A zero-dimensional CPU tensor holding the number, flagged as a wrapped number.
TG_API Tensor wrapped_number(const Scalar& s);

// What a result will be, as shape functions say it: allocation is the caller's work.
struct TensorSpec {
  DimVector sizes;
  DType dtype = DType::float32;
  Device device;
  DimVector strides;  // empty: contiguous
};
// Where a view lies in its base's storage.
struct ViewSpec {
  DimVector sizes;
  DimVector strides;
  int64_t offset = 0;
  std::optional<DType> dtype{};  // set where the bytes are read as another type; sizes are in elements of it
};

// New tensor without initial values; no tape.
TG_API Tensor empty_tensor(IntSpan sizes, DType dtype, Device device = {});
TG_API Tensor empty_tensor(const TensorSpec& spec);
// Another tensor over the same storage; no tape. Bounds are the caller's promise (view functions check).
TG_API Tensor alias_tensor(const Tensor& base, IntSpan sizes, IntSpan strides, int64_t offset);
TG_API Tensor alias_tensor(const Tensor& base, const ViewSpec& view);

// `d` counted from the front, for a tensor of ndim dimensions (at least 1 is assumed, as in PyTorch).
TG_API int64_t wrap_dim(int64_t d, int64_t ndim, const char* op);
// The set of dimensions as a bit mask; an absent or empty list means all. Raises on repetition.
TG_API uint64_t dim_mask(OptionalInts dims, int64_t ndim, const char* op);
// The shape both broadcast to. Raises Runtime: `op: shapes [2, 3] and [4] do not broadcast: last sizes ...`.
TG_API DimVector broadcast_sizes(IntSpan a, IntSpan b, const char* op);
// Whether two elements of one tensor share memory (write target of in-place operators), conservatively.
TG_API bool has_internal_overlap(const Tensor& t);
TG_API DType default_dtype() noexcept;
TG_API void set_default_dtype(DType t);
TG_API Device default_device() noexcept;
TG_API void set_default_device(Device d);

}  // namespace tapegrad

#include "tapegrad/aten/operators.h"
