// Sparse tensors in coordinate form: `indices` (sparse dimensions, entries) of int64 and `values` (entries, dense
// dimensions ...); everything else is zero, and entries at the same place add up. A SparseImpl has the sizes and the
// dtype of the tensor that it represents, and an empty storage. Its device is DeviceType::Sparse, for which there are
// neither kernels nor an allocator, so that operators without sparse support refuse it. Indices and values are ordinary
// tensors on one device, and all work is done by operators on them: on the CPU, where the index of the sparse tensor's
// device is 0, or on cuda:N, where it is 1 + N. Indices are checked once, when a tensor is made. Immutable but for
// what is known of the order of the entries, and for what is written to (`out=`, copy_); the tensors it holds may be
// shared.
//
// A matrix in a compressed form (CSR by rows, CSC by columns; compressed.cpp) is one whose entries are sorted by that
// dimension, with `starts` beside them: where each row's or column's entries begin. It keeps its indices as
// coordinates, too (8 bytes per entry), so that every operator on coordinates takes it as it is. In BSR and BSC an
// entry is a block: its values are (nnz, height, width, dense ...) and its indices count blocks, those of CSR being
// blocks of one element without these two dimensions. Several matrices of one number of entries are a batch: starts are
// (batch ..., rows + 1), values (batch ..., nnz, ...), and the indices (batch dimensions + 2, entries of all) say of
// each entry in which matrix it is. What is in blocks or in batches is not plain: operators take its elements().
#pragma once

#include <array>
#include <atomic>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::sparse {

class TG_API SparseImpl final : public TensorImpl {
 public:
  SparseImpl(Tensor indices, Tensor values, IntSpan sizes, bool coalesced, int compressed = -1, Tensor starts = {});
  const Tensor& indices() const noexcept { return indices_; }
  const Tensor& values() const noexcept { return values_; }
  bool coalesced() const noexcept { return coalesced_; }
  // Takes over the form and entries of another one, of this dtype and on this device. Needs exclusive use of the
  // tensor.
  void assign(const SparseImpl& other);
  // What the caller knows of the entries; that they are so is not looked at, as in PyTorch.
  void set_coalesced(bool coalesced) noexcept { coalesced_ = coalesced; }
  int compressed() const noexcept { return compressed_; }
  const Tensor& starts() const noexcept { return starts_; }
  // Of a transposed one, whose values share the other's memory: what it was made of, else undefined.
  const Tensor& base() const noexcept { return base_; }
  void set_base(Tensor base) noexcept { base_ = std::move(base); }
  int64_t batch_dims() const noexcept { return compressed_ < 0 ? 0 : starts_.ndim() - 1; }
  int64_t dense_dims() const noexcept { return ndim() - indices_.size(0); }
  // The dimensions of the values before the dense ones: batches, entries, and two of a block.
  int64_t leading_dims() const noexcept { return values_.ndim() - dense_dims(); }
  bool in_blocks() const noexcept { return leading_dims() == batch_dims() + 3; }
  int64_t block(int64_t dim) const noexcept { return in_blocks() ? values_.size(batch_dims() + 1 + dim) : 1; }
  bool plain() const noexcept { return leading_dims() == 1; }

 protected:
  void release_resources() noexcept override;

 private:
  Tensor indices_, values_, base_;
  bool coalesced_;  // sorted by rows, and every place at most once
  int compressed_;  // the dimension whose indices are compressed, 0 or 1; -1: neither
  Tensor starts_;   // (batch ..., blocks of that dimension + 1) of int64 or, if made of those, int32; undefined for -1
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
// Entries sorted by place, those of one place added; in coordinate form.
TG_API Tensor coalesce(const Tensor& t);
// The same entries in coordinate form, as they are.
TG_API Tensor in_coordinates(const Tensor& t);
// t if it is plain, else in_coordinates(t).
inline Tensor elements(const Tensor& t) { return impl_of(t, "elements").plain() ? t : in_coordinates(t); }
// The values of t as (entries of all batches, block, dense ...).
TG_API Tensor entries(const Tensor& t);
// Of a dense tensor what lies at the places of t, in the form of t's values; recorded. Raises Runtime for other sizes.
TG_API Tensor values_at(const Tensor& dense, const Tensor& t);

// How a matrix is compressed: by rows (0) or columns (1), and in blocks of which height and width; {0, 0}: in none.
struct Form {
  int64_t dim;
  std::array<int64_t, 2> block{};
  bool in_blocks() const noexcept { return block[0] != 0; }
  TG_API const char* name() const noexcept;  // csr, csc, bsr, bsc
};
TG_API Form form_of(const Tensor& t);  // of a compressed one
// A sparse tensor in that form, its entries sorted, those of one place added. Recorded. Raises Runtime unless it has
// two sparse dimensions, and blocks divide it; batches and other blocks cannot be divided anew.
TG_API Tensor compress(const Tensor& t, const Form& form);
// The elements of a dense one that are not zero, or the blocks that have such an element: (batch ..., rows, columns,
// dense ...). Raises Runtime, also where two matrices of a batch have not as many.
TG_API Tensor compress_dense(const Tensor& t, const Form& form, int64_t dense_dims);
// A tensor of `starts`, the indices of the other dimension and values, as above. Starts and bounds are checked, for
// which a device is waited for; `whole`: also that entries are sorted, each place once. Raises Runtime.
TG_API Tensor make_compressed(int64_t dim, bool in_blocks, const Tensor& starts, const Tensor& others,
                              const Tensor& values, IntSpan sizes, bool whole);
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
