// Sparse tensors in coordinate form: `indices` (sparse dimensions, entries) of int64 and `values` (entries, dense
// dimensions ...); everything else is zero, and entries at the same place add up. A SparseImpl has the sizes and the
// dtype of the tensor that it represents, and an empty storage. Its device is DeviceType::Sparse, for which there are
// neither kernels nor an allocator, so that operators without sparse support refuse it. Indices and values are ordinary
// tensors on one device, and all work is done by operators on them: on the CPU, where the index of the sparse tensor's
// device is 0, or on cuda:N, where it is 1 + N. Indices are checked once, when a tensor is made. Immutable; the tensors
// it holds may be shared.
#pragma once

#include <atomic>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::sparse {

class TG_API SparseImpl final : public TensorImpl {
 public:
  SparseImpl(Tensor indices, Tensor values, IntSpan sizes, bool coalesced);
  const Tensor& indices() const noexcept { return indices_; }
  const Tensor& values() const noexcept { return values_; }
  bool coalesced() const noexcept { return coalesced_; }

 protected:
  void release_resources() noexcept override;

 private:
  Tensor indices_, values_;
  bool coalesced_;  // sorted, and every place at most once
};

// Checks everything; raises Runtime. The values may be part of the tape. On a device the check does not synchronise: an
// index out of bounds is raised as Index at the next synchronisation.
TG_API Tensor make(const Tensor& indices, const Tensor& values, IntSpan sizes, bool coalesced);

TG_API const SparseImpl& impl_of(const Tensor& t, const char* op);  // raises Runtime for a dense tensor
inline const Tensor& indices(const Tensor& t) { return impl_of(t, "indices").indices(); }
inline const Tensor& values(const Tensor& t) { return impl_of(t, "values").values(); }
inline int64_t sparse_dims(const Tensor& t) { return indices(t).size(0); }
// Where the indices and values of a sparse tensor are, or a dense one.
inline Device device(const Tensor& t) noexcept {
  const Device d = t.device();
  if (!d.is_sparse()) return d;
  return d.index == 0 ? Device() : Device(DeviceType::CUDA, static_cast<int8_t>(d.index - 1));
}

// Raises Runtime for tensors on two devices.
TG_API void check_same_device(const char* op, Device a, Device b);

// Another tensor of the same entries.
TG_API Tensor alias(const Tensor& t);
// A tensor with the indices of t and other values (entries, ...).
TG_API Tensor with_values(const Tensor& t, const Tensor& values);
// Entries sorted by place, those of one place added.
TG_API Tensor coalesce(const Tensor& t);
TG_API Tensor to_dense(const Tensor& t);
TG_API Tensor from_dense(const Tensor& t, int64_t sparse_dims);
// Raises NotImplemented unless `self` is sparse and `other` a number.
void check_number(const char* op, const Tensor& self, const Tensor& other);
// The sum of two tensors of which at least one is sparse; sparse when both are.
TG_API Tensor sum_of(const Tensor& a, const Tensor& b);
// dense += alpha * t, touching only the places that t has.
TG_API void add_to_(const Tensor& dense, const Tensor& t, const Scalar& alpha);

// Records indices out of bounds in `indices` (sparse dimensions, entries), contiguous on a device other than the CPU;
// registered by the device's library when it is loaded.
using CheckIndices = void (*)(const Tensor& indices, IntSpan sizes);
TG_API extern std::atomic<CheckIndices> check_indices;

}  // namespace tapegrad::sparse
