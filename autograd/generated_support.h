// Support code of generated tape nodes. Included by generated code only.
#pragma once

#include <array>
#include <tuple>

#include "tapegrad/autograd/profiler/profiler.h"
#include "tapegrad/autograd/saved_tensor.h"

namespace tapegrad::autograd {

// A tensor's metadata, saved in place of a tensor when a gradient needs shape or dtype but not values. It has the same
// member functions as Tensor for these, so that formulas work with either.
class TensorMeta {
 public:
  TensorMeta() = default;
  explicit TensorMeta(const Tensor& t) {
    if (!t.defined()) return;
    sizes_ = t.sizes();
    strides_ = t.strides();
    offset_ = t.storage_offset();
    dtype_ = t.dtype();
    device_ = t.device();
  }
  IntSpan sizes() const noexcept { return sizes_; }
  IntSpan strides() const noexcept { return strides_; }
  int64_t storage_offset() const noexcept { return offset_; }
  DType dtype() const noexcept { return dtype_; }
  Device device() const noexcept { return device_; }
  int ndim() const noexcept { return static_cast<int>(sizes_.size()); }
  int64_t dim() const noexcept { return ndim(); }
  int64_t size(int64_t d) const { return sizes_[static_cast<size_t>(wrap_dim(d, ndim(), "size"))]; }
  int64_t stride(int64_t d) const { return strides_[static_cast<size_t>(wrap_dim(d, ndim(), "stride"))]; }
  int64_t numel() const noexcept {
    int64_t n = 1;
    for (int64_t s : sizes_) n *= s;
    return n;
  }
  size_t itemsize() const noexcept { return element_size(dtype_); }
  bool is_complex() const noexcept { return tapegrad::is_complex(dtype_); }
  bool is_floating_point() const noexcept { return tapegrad::is_floating_point(dtype_); }

 private:
  DimVector sizes_;
  DimVector strides_;
  int64_t offset_ = 0;
  DType dtype_ = DType::float32;
  Device device_;
};

inline std::vector<TensorMeta> metas_of(TensorSpan tensors) {
  return std::vector<TensorMeta>(tensors.begin(), tensors.end());
}

// For lists of tensors and of their metadata.
template <class List>
std::vector<DimVector> sizes_of(const List& list) {
  std::vector<DimVector> sizes;
  for (const auto& t : list) sizes.emplace_back(t.sizes());
  return sizes;
}
template <class List>
std::vector<DType> dtypes_of(const List& list) {
  std::vector<DType> dtypes;
  for (const auto& t : list) dtypes.push_back(t.dtype());
  return dtypes;
}

// Base of generated nodes.
struct GeneratedNode : Node {
  bool needs_any(size_t first, size_t count) const noexcept {
    for (size_t i = first; i < first + count; ++i)
      if (needs(i)) return true;
    return false;
  }
  // The metadata of the input of edge i, taken from its node.
  const OutputMeta& input_meta(size_t i) const noexcept { return edges[i].node->outputs[edges[i].input]; }
  std::vector<Tensor> materialise(const GradList& grads) const {
    std::vector<Tensor> full;
    for (size_t i = 0; i < grads.size(); ++i) full.push_back(grad_or_zeros(grads[i], outputs[i]));
    return full;
  }
};

inline void move_into(GradList& grads, size_t first, std::vector<Tensor>&& values) {
  TG_ASSERT(first + values.size() <= grads.size());
  for (size_t i = 0; i < values.size(); ++i) grads[first + i] = std::move(values[i]);
}
inline void release_list(SavedList& list) noexcept {
  for (SavedTensor& t : list) t.release();
}
inline OptionalInts as_optional_ints(const std::optional<DimVector>& v) {
  return v ? OptionalInts(IntSpan(*v)) : OptionalInts();
}

// A copy of what an in-place operator is about to overwrite, in the place of the original on the tape.
TG_API Tensor before_write(const Tensor& self);

[[noreturn]] TG_API TG_COLD void throw_recorded_out(const char* op);

}  // namespace tapegrad::autograd
