// TensorImpl: what a tensor is. A view (sizes, strides, offset, dtype) of a storage, plus autograd metadata
// that exists only where it is needed, plus a slot for the Python object so that identity holds.
//
// Ownership: handles (`Tensor`) own the TensorImpl, which owns its storage and its autograd metadata. The Python object
// owns a TensorImpl; where the Python object must outlive its last Python reference (it carries attributes, or is of a
// subclass) ownership is reversed, see bindings/tensor/tensor_object.h. Threads: reading from many threads is safe;
// changing metadata needs exclusive use.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "tapegrad/c10/tensor/dtype.h"
#include "tapegrad/c10/tensor/intrusive_ptr.h"
#include "tapegrad/c10/tensor/kinds.h"
#include "tapegrad/c10/tensor/memory_format.h"
#include "tapegrad/c10/tensor/small_vector.h"
#include "tapegrad/c10/tensor/storage.h"

namespace tapegrad {

// Base of autograd::AutogradMeta; c10 only deletes it and queries it.
struct TG_API AutogradMetaBase {
  virtual ~AutogradMetaBase() = default;
  // Whether a view created without the tape now needs a gradient because its base was written to.
  virtual bool view_needs_grad() const noexcept { return false; }
};

// Installed once by the Python bindings: called when a TensorImpl that owns its Python object dies.
TG_API extern void (*release_python_object)(void* object) noexcept;

// A version counter apart from the storage's, for tensors made by `.data` and `detach_data`, whose writes the
// tape must not see (PyTorch's rule).
struct VersionBox final : intrusive_ptr_target {
  VersionCounter counter;
};

class TG_API TensorImpl : public intrusive_ptr_target {
 public:
  static constexpr int kInlineDims = 5;

  TensorImpl(Storage storage, DType dtype, IntSpan sizes, IntSpan strides, int64_t offset);
  // Contiguous of the given sizes; the storage must be large enough.
  TensorImpl(Storage storage, DType dtype, IntSpan sizes);
  ~TensorImpl() override;

  int ndim() const noexcept { return ndim_; }
  int64_t numel() const noexcept { return numel_; }
  IntSpan sizes() const noexcept { return {dims(), static_cast<size_t>(ndim_)}; }
  IntSpan strides() const noexcept { return {dims() + capacity_, static_cast<size_t>(ndim_)}; }
  int64_t size(int d) const noexcept { return dims()[d]; }  // no check, no negative d
  int64_t stride(int d) const noexcept { return dims()[capacity_ + d]; }
  int64_t offset() const noexcept { return offset_; }
  DType dtype() const noexcept { return dtype_; }
  size_t itemsize() const noexcept { return element_size(dtype_); }
  Device device() const noexcept { return device_; }
  const Storage& storage() const noexcept { return storage_; }
  bool is_contiguous() const noexcept { return contiguous_; }
  bool is_contiguous(MemoryFormat format) const noexcept;
  // Whether no element is reached twice and there are no gaps, in any order of dimensions.
  bool is_non_overlapping_and_dense() const noexcept;

  // The address of the first element. Null when there is no data.
  void* data() const noexcept {
    auto* base = static_cast<char*>(storage_->data());
    return base ? base + offset_ * static_cast<int64_t>(itemsize()) : nullptr;
  }

  // Exchanges geometry in place (resize_, set_, t_ and the like); sizes and strides must be of equal length
  // and reach inside the storage.
  void set_geometry(IntSpan sizes, IntSpan strides, int64_t offset);
  void set_storage(Storage storage, DType dtype);

  // Wraps a number that was an operand (`x + 2`), which takes part in promotion only by its category.
  bool is_wrapped_number() const noexcept { return wrapped_number_; }
  void set_wrapped_number(bool value) noexcept { wrapped_number_ = value; }

  // True if a gradient flows here: a leaf that requires one, or the result of a recorded operator. A view created
  // without the tape follows its base, so its metadata is queried each time.
  bool needs_grad() const noexcept {
    return (kinds_ & kKindGrad) != 0 && (TG_LIKELY(!follows_base_) || autograd_->view_needs_grad());
  }
  void set_needs_grad(bool value) noexcept {
    kinds_ = static_cast<uint8_t>(value ? kinds_ | kKindGrad : kinds_ & ~kKindGrad);
    follows_base_ = false;
  }
  void set_needs_grad_of_view() noexcept {
    kinds_ = static_cast<uint8_t>(kinds_ | kKindGrad);
    follows_base_ = true;
  }
  // The bits kKind... (kinds.h) that hold for it: what an operator tests together with the thread's modes.
  // kKindGrad is set wherever needs_grad() may be true.
  uint8_t kinds() const noexcept { return kinds_; }
  // Created under inference_mode: never recorded, has no version counter.
  bool is_inference() const noexcept { return inference_; }
  void set_inference(bool value) noexcept { inference_ = value; }

  AutogradMetaBase* autograd() const noexcept { return autograd_.get(); }
  void set_autograd(std::unique_ptr<AutogradMetaBase> meta) noexcept { autograd_ = std::move(meta); }
  std::unique_ptr<AutogradMetaBase> take_autograd() noexcept { return std::move(autograd_); }

  uint32_t version() const noexcept { return counter().version.load(std::memory_order_relaxed); }
  VersionCounter& counter() const noexcept { return own_version_ ? own_version_->counter : storage_->version(); }
  void bump_version(const char* op, uint32_t site) noexcept { counter().bump({op, site}); }
  void detach_version() { own_version_ = make_intrusive<VersionBox>(); }
  void share_version(const TensorImpl& other) { own_version_ = other.own_version_; }

  void* python_object() const noexcept { return python_.load(std::memory_order_acquire); }
  void set_python_object(void* object) noexcept { python_.store(object, std::memory_order_release); }
  bool owns_python_object() const noexcept { return owns_python_; }
  void set_owns_python_object(bool value) noexcept { owns_python_ = value; }

  static void* operator new(size_t n);
  static void operator delete(void* p, size_t n) noexcept;

 protected:
  void release_resources() noexcept override;
  // For kinds of tensors that kernels cannot take.
  void set_device(Device d) noexcept {
    device_ = d;
    kinds_ = static_cast<uint8_t>((kinds_ & kKindGrad) | (d.is_sparse() ? kKindSparse : 0) |
                                  (d.is_batched() ? kKindBatched : 0));
  }

 private:
  int64_t* dims() noexcept { return capacity_ == kInlineDims ? inline_dims_ : heap_dims_; }
  const int64_t* dims() const noexcept { return capacity_ == kInlineDims ? inline_dims_ : heap_dims_; }
  void set_dims(IntSpan sizes, IntSpan strides);
  void set_contiguous_dims(IntSpan sizes);
  void set_ndim(size_t n);

  Storage storage_;
  int64_t offset_ = 0;
  int64_t numel_ = 0;
  std::unique_ptr<AutogradMetaBase> autograd_;
  std::atomic<void*> python_{nullptr};
  intrusive_ptr<VersionBox> own_version_;
  Device device_;
  DType dtype_;
  uint8_t ndim_ = 0;
  uint8_t capacity_ = kInlineDims;
  bool contiguous_ = true;
  bool wrapped_number_ = false;
  uint8_t kinds_ = 0;
  bool follows_base_ = false;  // a view created without the tape: its base decides
  bool inference_ = false;
  bool owns_python_ = false;
  union {
    int64_t inline_dims_[2 * kInlineDims];
    int64_t* heap_dims_;
  };
};

// The product of sizes; raises Value for a negative size and Runtime when it does not fit into 63 bits.
TG_API int64_t checked_numel(IntSpan sizes, const char* op);
// checked_numel times the element size, likewise checked.
TG_API int64_t checked_nbytes(IntSpan sizes, DType dtype, const char* op);
TG_API DimVector contiguous_strides(IntSpan sizes);
TG_API DimVector channels_last_strides(IntSpan sizes);  // 3, 4 or 5 dimensions: channel is dimension 1
// Raises Runtime unless every element of the view lies inside a storage of `nbytes`. All sums are
// checked against overflow.
TG_API void check_in_bounds(IntSpan sizes, IntSpan strides, int64_t offset, DType dtype, size_t nbytes, const char* op);

}  // namespace tapegrad
