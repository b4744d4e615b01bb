// Tensors that are more than a view of one storage: sparse and batched ones, each on a device type of its own. A
// TensorKind says what code needs that works on tensors of any kind and names none, such as the engine of the tape.
// The two kinds are constants of aten/sparse/ and aten/batch/. Any thread; nothing here is recorded on the tape unless
// said.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

struct TensorKind {
  // The ordinary tensor of all elements that are stored: of a sparse tensor's entries, of all samples. It belongs to t.
  const Tensor& (*values)(const Tensor& t);
  // Another tensor of the same values (Tensor::detach).
  Tensor (*detach)(const Tensor& t);
  // The device of ordinary tensors that t can meet, as their gradient for one: of a sparse tensor, where its parts are.
  Device (*device)(const Tensor& t);

  // --- null where ordinary operators do these ---
  // The sum of two tensors of which at least one is of this kind; recorded.
  Tensor (*sum)(const Tensor& a, const Tensor& b) = nullptr;
  // t with other values.
  Tensor (*with_values)(const Tensor& t, const Tensor& values) = nullptr;
};

namespace sparse {
TG_API extern const TensorKind kKind;
}
namespace batch {
TG_API extern const TensorKind kKind;
}

// The kind of a defined tensor; null for an ordinary one.
inline const TensorKind* kind_of(const Tensor& t) noexcept {
  return t.is_sparse() ? &sparse::kKind : t.is_batched() ? &batch::kKind : nullptr;
}
// The device of ordinary tensors that a tensor of any kind can meet.
inline Device device_among_dense(const Tensor& t) {
  const TensorKind* kind = kind_of(t);
  return kind != nullptr ? kind->device(t) : t.device();
}

}  // namespace tapegrad
