#include "tapegrad/aten/sparse/sparse_tensor.h"

#include <algorithm>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_sparse.h"
#include "tapegrad/aten/sparse/blocks.h"
#include "tapegrad/aten/tensor_kind.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::sparse {

std::atomic<CheckIndices> check_indices{nullptr};

namespace {

Storage no_storage(Device parts) {
  const Device device(DeviceType::Sparse, parts.is_cuda() ? static_cast<int8_t>(parts.index + 1) : int8_t{0});
  Storage storage = make_intrusive<StorageImpl>(nullptr, 0, device, nullptr, nullptr);
  storage->set_resizable(false);
  return storage;
}

DimVector places_along(const Tensor& t) {
  return places_along(form_of(t), t.sizes(), static_cast<size_t>(sparse_dims(t)));
}

// The place of each entry as one number, and how many places there are.
std::pair<Tensor, int64_t> flat_places(const Tensor& t) {
  const DimVector along = places_along(t);
  int64_t places = 1;
  for (int64_t n : along) places *= n;
  return {flat_index(indices(t), along), places};
}

// The sizes of so many entries.
DimVector entry_sizes(const Tensor& t, int64_t count) {
  const SparseImpl& impl = impl_of(t, "sparse");
  DimVector sizes{count};
  for (int64_t s : impl.values().sizes().subspan(static_cast<size_t>(impl.batch_dims()) + 1)) sizes.push_back(s);
  return sizes;
}

}  // namespace

void check_in_bounds(const Tensor& index, IntSpan sizes, const char* op) {
  if (!index.is_cpu()) return check_indices.load()(index, sizes);
  const int64_t* p = index.data<int64_t>();
  const int64_t n = index.size(1);
  for (int64_t d = 0; d < index.size(0); ++d)
    for (int64_t k = 0; k < n; ++k)
      TG_CHECK(p[d * n + k] >= 0 && p[d * n + k] < sizes[static_cast<size_t>(d)], Runtime,
               "{}: size is inconsistent with indices: for dim {}, size is {} but found index {}", op, d,
               sizes[static_cast<size_t>(d)], p[d * n + k]);
}

Tensor flat_index(const Tensor& index, IntSpan along) {
  if (along.empty()) return raw::sum(index, IntSpan({0}), false, {});  // all of them are at the one place
  Tensor flat = raw::select(index, 0, 0);
  for (size_t d = 1; d < along.size(); ++d)
    flat = raw::add(raw::mul(flat, along[d]), raw::select(index, 0, static_cast<int64_t>(d)));
  return flat;
}

Tensor index_of_flat(const Tensor& flat, IntSpan along) {
  std::vector<Tensor> rows(along.size());
  if (rows.empty()) return raw::expand(raw::unsqueeze(flat, 0), {0, flat.size(0)});
  Tensor rest = flat;
  for (size_t d = rows.size(); d-- > 1;) {
    rows[d] = along[d] == 0 ? rest : raw::remainder(rest, along[d]);  // no entries where a size is 0
    if (along[d] != 0) rest = raw::div(rest, along[d], "floor");
  }
  rows[0] = rest;
  return raw::stack(rows, 0);
}

SparseImpl::SparseImpl(Tensor indices, Tensor values, IntSpan sizes, bool coalesced, int compressed, Tensor starts)
    : TensorImpl(no_storage(values.device()), values.dtype(), sizes),
      indices_(std::move(indices)),
      values_(std::move(values)),
      coalesced_(coalesced),
      compressed_(compressed),
      starts_(std::move(starts)) {}

void SparseImpl::assign(const SparseImpl& other) {
  TG_ASSERT(dtype() == other.dtype() && device() == other.device());
  set_geometry(other.sizes(), other.strides(), 0);
  indices_ = other.indices_;
  values_ = other.values_;
  coalesced_ = other.coalesced_;
  compressed_ = other.compressed_;
  starts_ = other.starts_;
  base_.reset();
}

void SparseImpl::release_resources() noexcept {
  indices_.reset();
  values_.reset();
  starts_.reset();
  base_.reset();
  TensorImpl::release_resources();
}

const SparseImpl& impl_of(const Tensor& t, const char* op) {
  const auto* impl = dynamic_cast<const SparseImpl*>(t.impl());
  TG_CHECK(impl != nullptr, Runtime, "{}: expected a sparse tensor: got a dense one of sizes {}", op,
           format_ints(t.sizes()));
  return *impl;
}

Tensor make(const Tensor& given, const Tensor& values, IntSpan sizes, bool coalesced) {
  constexpr const char* kOp = "sparse_coo_tensor";
  for (const Tensor* part : {&given, &values})
    TG_CHECK(part->is_cpu() || part->is_cuda(), Runtime, "{}: indices and values must be dense and have memory: got {}",
             kOp, part->device());
  TG_CHECK(given.ndim() == 2 && is_integral(given.dtype()), Runtime,
           "{}: indices must be an integral matrix (sparse_dim, nnz): got {} {}", kOp, given.dtype(),
           format_ints(given.sizes()));
  TG_CHECK(values.ndim() >= 1, Runtime, "{}: values must be dense, (nnz, ...): got {}", kOp,
           format_ints(values.sizes()));
  check_same_device(kOp, given.device(), values.device());
  TG_CHECK(values.size(0) == given.size(1), Runtime,
           "{}: indices and values must have same nnz: got {} from indices and {} from values", kOp, given.size(1),
           values.size(0));
  const int64_t dims = given.size(0);
  TG_CHECK(dims + values.ndim() - 1 == static_cast<int64_t>(sizes.size()), Runtime,
           "{}: number of dimensions must be sparse_dim ({}) + dense_dim ({}), but got {}", kOp, dims,
           values.ndim() - 1, sizes.size());
  checked_numel(sizes, kOp);
  for (size_t d = static_cast<size_t>(dims); d < sizes.size(); ++d)
    TG_CHECK(values.sizes()[d - static_cast<size_t>(dims) + 1] == sizes[d], Runtime,
             "{}: values has incorrect size, expected {} in dimension {}: got {}", kOp, sizes[d], d,
             format_ints(values.sizes()));
  Tensor index = raw::contiguous(given.dtype() == DType::int64 ? given : raw::to(given, DType::int64));
  check_in_bounds(index, sizes, kOp);
  coalesced = coalesced || index.size(1) <= 1;
  return Tensor(make_intrusive<SparseImpl>(std::move(index), values, sizes, coalesced));
}

void check_same_device(const char* op, Device a, Device b) {
  TG_CHECK(a == b, Runtime, "{}: expected all tensors on one device: got {} and {}", op, a, b);
}

Tensor alias(const Tensor& t) {
  const SparseImpl& impl = impl_of(t, "detach");
  return Tensor(make_intrusive<SparseImpl>(impl.indices(), impl.values().detach(), t.sizes(), impl.coalesced(),
                                           impl.compressed(), impl.starts()));
}

const TensorKind kKind{values, alias, device, sum_of, with_values};

Tensor with_values(const Tensor& t, const Tensor& values) {
  const SparseImpl& impl = impl_of(t, "sparse");
  const IntSpan leading = impl.values().sizes().subspan(0, static_cast<size_t>(impl.leading_dims()));
  TG_CHECK(
      values.sizes().size() >= leading.size() && std::ranges::equal(values.sizes().subspan(0, leading.size()), leading),
      Runtime, "sparse: expected values that begin with the sizes {}: got {}", format_ints(leading),
      format_ints(values.sizes()));
  check_same_device("sparse", impl.indices().device(), values.device());
  DimVector sizes(t.sizes().subspan(0, static_cast<size_t>(sparse_dims(t))));
  for (int64_t s : values.sizes().subspan(leading.size())) sizes.push_back(s);
  return Tensor(
      make_intrusive<SparseImpl>(impl.indices(), values, sizes, impl.coalesced(), impl.compressed(), impl.starts()));
}

Tensor entries(const Tensor& t) {
  const SparseImpl& impl = impl_of(t, "values");
  return impl.batch_dims() == 0 ? impl.values() : reshape(impl.values(), entry_sizes(t, impl.indices().size(1)));
}

Tensor in_coordinates(const Tensor& t) {
  const SparseImpl& impl = impl_of(t, "to_sparse");
  if (impl.compressed() < 0) return t;
  if (!impl.in_blocks())
    return Tensor(make_intrusive<SparseImpl>(impl.indices(), entries(t), t.sizes(), impl.coalesced()));
  const int64_t n = impl.indices().size(1), dims = sparse_dims(t), height = impl.block(0), width = impl.block(1);
  std::vector<Tensor> rows;  // of each element of each block
  for (int64_t d = 0; d < dims; ++d) {
    Tensor row = raw::reshape(raw::select(impl.indices(), 0, d), {n, 1, 1});
    if (d >= dims - 2) {
      const int64_t size = impl.block(d - dims + 2);
      const Tensor within = raw::_arange(0, size, 1, DType::int64, device(t));
      row = raw::add(raw::mul(row, size), d == dims - 1 ? within : raw::unsqueeze(within, 1));
    }
    rows.push_back(raw::reshape(raw::expand(row, {n, height, width}), {-1}));
  }
  DimVector sizes{n * height * width};
  for (int64_t s : t.sizes().subspan(static_cast<size_t>(dims))) sizes.push_back(s);
  return Tensor(make_intrusive<SparseImpl>(raw::stack(rows, 0), reshape(impl.values(), sizes), t.sizes(), false));
}

Tensor coalesce(const Tensor& given) {
  const Tensor t = in_coordinates(given);
  const SparseImpl& impl = impl_of(t, "coalesce");
  if (impl.coalesced()) return t;
  const auto [places, unused] = flat_places(t);
  const auto unique = raw::_unique(places, true, true);
  const Tensor &sorted = std::get<0>(unique), &entry = std::get<1>(unique);
  const Tensor none = zeros(entry_sizes(t, sorted.numel()), t.dtype(), device(t));
  return Tensor(make_intrusive<SparseImpl>(index_of_flat(sorted, places_along(t)),
                                           index_add(none, 0, entry, impl.values()), t.sizes(), true));
}

Tensor to_dense(const Tensor& t) {
  const SparseImpl& impl = impl_of(t, "to_dense");
  const auto [places, count] = flat_places(t);
  const Tensor flat = index_add(zeros(entry_sizes(t, count), t.dtype(), device(t)), 0, places, entries(t));
  return impl.in_blocks() ? joined_blocks(flat, places_along(t), t.sizes()) : reshape(flat, t.sizes());
}

Tensor from_dense(const Tensor& t, int64_t dims) {
  TG_CHECK(dims > 0 && dims <= t.ndim(), Runtime, "to_sparse: sparse_dim must be between 1 and {}: got {}", t.ndim(),
           dims);
  DimVector leading(t.sizes().subspan(0, static_cast<size_t>(dims)));
  leading.push_back(-1);
  Tensor used = t.detach();
  if (dims < t.ndim()) {
    int64_t places = 1, rest = 1;
    for (int64_t d = 0; d < t.ndim(); ++d) (d < dims ? places : rest) *= t.size(d);
    used = raw::any(raw::ne(raw::reshape(used, {places, rest}), 0), IntSpan({1}), false);
    used = raw::reshape(used, IntSpan(leading.data(), static_cast<size_t>(dims)));
  }
  const Tensor index = raw::contiguous(raw::transpose(raw::nonzero(used), 0, 1));
  std::vector<Tensor> at;
  for (int64_t d = 0; d < dims; ++d) at.push_back(raw::select(index, 0, d));
  return Tensor(make_intrusive<SparseImpl>(index, tapegrad::_index(t, at), t.sizes(), true));
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  TG_CHECK(a.sizes() == b.sizes(), Runtime,
           "add: Expected input tensors to have the same shape, as sparse ones do not broadcast: got {} and {}",
           format_ints(a.sizes()), format_ints(b.sizes()));
  check_same_device("add", device(a), device(b));
  if (!a.is_sparse() || !b.is_sparse()) {
    const Tensor &dense = a.is_sparse() ? b : a, sparse = elements(a.is_sparse() ? a : b);
    const auto [places, count] = flat_places(sparse);
    const DType common = promote_types(dense.dtype(), sparse.dtype());
    const Tensor flat = reshape(to(dense, common), entry_sizes(sparse, count));
    return reshape(index_add(flat, 0, places, to(values(sparse), common)), a.sizes());
  }
  TG_CHECK(sparse_dims(a) == sparse_dims(b), Runtime,
           "add: expected sparse tensors of one number of sparse dimensions: got {} and {}", sparse_dims(a),
           sparse_dims(b));
  if (impl_of(a, "add").compressed() >= 0) return sum_of_compressed(a, b);
  const Tensor second = elements(b), index[] = {indices(a), indices(second)}, terms[] = {values(a), values(second)};
  return Tensor(make_intrusive<SparseImpl>(raw::cat(index, 1), cat(terms, 0), a.sizes(), false));
}

void add_to_(const Tensor& dense, const Tensor& given, const Scalar& alpha) {
  const Tensor t = elements(given);
  TG_CHECK(dense.sizes() == t.sizes(), Runtime, "add_: a sparse tensor of sizes {} for a target of {}",
           format_ints(t.sizes()), format_ints(dense.sizes()));
  check_same_device("add_", dense.device(), device(t));
  TG_CHECK(dense.is_contiguous(), Runtime, "add_: the target of a sparse tensor must be contiguous");
  NoGradGuard guard;
  const auto [places, count] = flat_places(t);
  const DimVector sizes = entry_sizes(t, count);
  const Tensor flat = alias_tensor(dense, sizes, contiguous_strides(sizes), dense.storage_offset());
  raw::index_add_(flat, 0, places, raw::to(values(t), dense.dtype()), alpha);
}

}  // namespace tapegrad::sparse
