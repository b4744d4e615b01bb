#include "tapegrad/aten/sparse/sparse_tensor.h"

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_sparse.h"
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

// The place of each entry as one number, and how many places there are.
std::pair<Tensor, int64_t> flat_places(const Tensor& t) {
  const Tensor& index = indices(t);
  const int64_t dims = index.size(0);
  int64_t places = 1;
  for (int64_t d = 0; d < dims; ++d) places *= t.size(d);
  if (dims == 0) return {raw::sum(index, IntSpan({0}), false, {}), 1};  // all of them are at the one place
  Tensor flat = raw::select(index, 0, 0);
  for (int64_t d = 1; d < dims; ++d) flat = raw::add(raw::mul(flat, t.size(d)), raw::select(index, 0, d));
  return {flat, places};
}

// The indices (sparse dimensions, entries) of such numbers.
Tensor places_of(const Tensor& flat, const Tensor& t) {
  std::vector<Tensor> rows(static_cast<size_t>(sparse_dims(t)));
  if (rows.empty()) return raw::expand(raw::unsqueeze(flat, 0), {0, flat.size(0)});
  Tensor rest = flat;
  for (size_t d = rows.size(); d-- > 1;) {
    const int64_t size = t.sizes()[d];
    rows[d] = size == 0 ? rest : raw::remainder(rest, size);  // no entries where a size is 0
    if (size != 0) rest = raw::div(rest, size, "floor");
  }
  rows[0] = rest;
  return raw::stack(rows, 0);
}

DimVector dense_sizes(const Tensor& t, int64_t leading) {
  DimVector sizes{leading};
  for (int64_t s : t.sizes().subspan(static_cast<size_t>(sparse_dims(t)))) sizes.push_back(s);
  return sizes;
}

// A number outside of its dimension. On a device a kernel looks, and the next wait raises.
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

}  // namespace

SparseImpl::SparseImpl(Tensor indices, Tensor values, IntSpan sizes, bool coalesced, int compressed, Tensor starts)
    : TensorImpl(no_storage(values.device()), values.dtype(), sizes),
      indices_(std::move(indices)),
      values_(std::move(values)),
      coalesced_(coalesced),
      compressed_(compressed),
      starts_(std::move(starts)) {}

void SparseImpl::release_resources() noexcept {
  indices_.reset();
  values_.reset();
  starts_.reset();
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
  TG_CHECK(values.ndim() >= 1 && values.size(0) == impl.indices().size(1), Runtime,
           "sparse: expected {} values: got sizes {}", impl.indices().size(1), format_ints(values.sizes()));
  check_same_device("sparse", impl.indices().device(), values.device());
  DimVector sizes(t.sizes().subspan(0, static_cast<size_t>(sparse_dims(t))));
  for (int64_t s : values.sizes().subspan(1)) sizes.push_back(s);
  return Tensor(
      make_intrusive<SparseImpl>(impl.indices(), values, sizes, impl.coalesced(), impl.compressed(), impl.starts()));
}

Tensor in_coordinates(const Tensor& t) {
  const SparseImpl& impl = impl_of(t, "to_sparse");
  if (impl.compressed() < 0) return t;
  return Tensor(make_intrusive<SparseImpl>(impl.indices(), impl.values(), t.sizes(), impl.coalesced()));
}

Tensor coalesce(const Tensor& t) {
  const SparseImpl& impl = impl_of(t, "coalesce");
  if (impl.coalesced()) return in_coordinates(t);
  const auto [places, unused] = flat_places(t);
  const auto unique = raw::_unique(places, true, true);
  const Tensor &sorted = std::get<0>(unique), &entry = std::get<1>(unique);
  const Tensor none = zeros(dense_sizes(t, sorted.numel()), t.dtype(), device(t));
  return Tensor(
      make_intrusive<SparseImpl>(places_of(sorted, t), index_add(none, 0, entry, impl.values()), t.sizes(), true));
}

Tensor to_dense(const Tensor& t) {
  const auto [places, count] = flat_places(t);
  const Tensor flat = zeros(dense_sizes(t, count), t.dtype(), device(t));
  return reshape(index_add(flat, 0, places, values(t)), t.sizes());
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
  TG_CHECK(a.sizes() == b.sizes(), Runtime, "add: sparse tensors do not broadcast: got {} and {}",
           format_ints(a.sizes()), format_ints(b.sizes()));
  check_same_device("add", device(a), device(b));
  if (!a.is_sparse() || !b.is_sparse()) {
    const Tensor &dense = a.is_sparse() ? b : a, &sparse = a.is_sparse() ? a : b;
    const auto [places, count] = flat_places(sparse);
    const DType common = promote_types(dense.dtype(), sparse.dtype());
    const Tensor flat = reshape(to(dense, common), dense_sizes(sparse, count));
    return reshape(index_add(flat, 0, places, to(values(sparse), common)), a.sizes());
  }
  TG_CHECK(sparse_dims(a) == sparse_dims(b), Runtime,
           "add: expected sparse tensors of one number of sparse dimensions: got {} and {}", sparse_dims(a),
           sparse_dims(b));
  const Tensor index[] = {indices(a), indices(b)}, entries[] = {values(a), values(b)};
  const Tensor sum(make_intrusive<SparseImpl>(raw::cat(index, 1), cat(entries, 0), a.sizes(), false));
  const int dim = impl_of(a, "add").compressed();
  return dim >= 0 ? compress(sum, dim) : sum;
}

void add_to_(const Tensor& dense, const Tensor& t, const Scalar& alpha) {
  TG_CHECK(dense.sizes() == t.sizes(), Runtime, "add_: a sparse tensor of sizes {} for a target of {}",
           format_ints(t.sizes()), format_ints(dense.sizes()));
  check_same_device("add_", dense.device(), device(t));
  TG_CHECK(dense.is_contiguous(), Runtime, "add_: the target of a sparse tensor must be contiguous");
  NoGradGuard guard;
  const auto [places, count] = flat_places(t);
  const DimVector sizes = dense_sizes(t, count);
  const Tensor flat = alias_tensor(dense, sizes, contiguous_strides(sizes), dense.storage_offset());
  raw::index_add_(flat, 0, places, raw::to(values(t), dense.dtype()), alpha);
}

}  // namespace tapegrad::sparse
