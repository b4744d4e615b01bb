#include "tapegrad/aten/sparse/operators.h"

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_scan.h"
#include "tapegrad/aten/functions_sort.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/index/subscript.h"
#include "tapegrad/aten/sparse/blocks.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/aten/view/geometry.h"

namespace tapegrad::sparse {
void check_number(const char* op, const Tensor& self, const Tensor& other) {
  TG_CHECK(self.is_sparse() && !other.is_sparse() && other.ndim() == 0, NotImplemented,
           "{}: a sparse tensor goes with a number here: got sizes {} and {}\nuse to_dense()", op,
           format_ints(self.sizes()), format_ints(other.sizes()));
}

Tensor neg(const Tensor& input) { return with_values(input, tapegrad::neg(values(input))); }

Tensor add(const Tensor& input, const Operand& other, const Scalar& alpha) {
  const Tensor& b = other.tensor();
  TG_CHECK(!input.is_sparse() || b.is_sparse(), NotImplemented,
           "add: a sparse tensor plus a dense one is not there\nuse dense + sparse");
  const bool plain = alpha.to<double>() == 1;
  return sum_of(input, plain ? b : with_values(b, tapegrad::mul(values(b), alpha)));
}

Tensor sub(const Tensor& input, const Operand& other, const Scalar& alpha) {
  const Tensor& b = other.tensor();
  TG_CHECK(b.is_sparse(), NotImplemented, "sub: a sparse tensor minus a dense one is not there\nuse to_dense()");
  return sum_of(input, with_values(b, tapegrad::neg(tapegrad::mul(values(b), alpha))));
}

namespace {
// Of two sparse tensors, at the places that both have, in the form of the first.
Tensor product_of_both(const Tensor& a, const Tensor& given) {
  check_same_device("mul", device(a), device(given));
  TG_CHECK(a.sizes() == given.sizes() && sparse_dims(a) == sparse_dims(given), Runtime,
           "mul: sparse tensors do not broadcast: got {} and {} with {} and {} sparse dimensions",
           format_ints(a.sizes()), format_ints(given.sizes()), sparse_dims(a), sparse_dims(given));
  const Tensor x = coalesce(in_coordinates(a)), y = coalesce(in_coordinates(given));
  const DimVector along(a.sizes().subspan(0, static_cast<size_t>(sparse_dims(a))));
  const Tensor p = flat_index(indices(x), along), q = flat_index(indices(y), along);
  const Tensor first = raw::select(raw::nonzero(raw::isin(p, Operand(q))), 1, 0);
  const Tensor second = raw::searchsorted(q, Operand(raw::index_select(p, 0, first)));
  const Tensor terms =
      tapegrad::mul(tapegrad::index_select(values(x), 0, first), Operand(tapegrad::index_select(values(y), 0, second)));
  const Tensor both(make_intrusive<SparseImpl>(raw::index_select(indices(x), 1, first), terms, a.sizes(), true));
  return impl_of(a, "mul").compressed() < 0 ? both : compress(both, form_of(a));
}
}  // namespace

Tensor mul(const Tensor& input, const Operand& other) {
  if (input.is_sparse() && other.tensor().is_sparse()) return product_of_both(input, other.tensor());
  const Tensor &a = input.is_sparse() ? input : other.tensor(), &b = input.is_sparse() ? other.tensor() : input;
  if (!b.is_sparse() && b.ndim() == 0) return with_values(a, tapegrad::mul(values(a), Operand(b)));
  TG_CHECK(!b.is_sparse() && b.sizes() == a.sizes(), NotImplemented,
           "mul: a sparse tensor goes with a number or a dense tensor of its sizes: got sizes {} and {}",
           format_ints(a.sizes()), format_ints(b.sizes()));
  check_same_device("mul", device(a), b.device());
  return with_values(a, tapegrad::mul(values(a), values_at(b, a)));
}

Tensor div(const Tensor& input, const Operand& other, std::optional<std::string_view> rounding_mode) {
  check_number("div", input, other.tensor());
  return with_values(input, tapegrad::div(values(input), other, rounding_mode));
}

Tensor clone(const Tensor& input, std::optional<MemoryFormat>) {
  const SparseImpl& impl = impl_of(input, "clone");
  const Tensor starts = impl.starts().defined() ? raw::clone(impl.starts()) : Tensor();
  return Tensor(make_intrusive<SparseImpl>(raw::clone(impl.indices()), tapegrad::clone(impl.values()), input.sizes(),
                                           impl.coalesced(), impl.compressed(), starts));
}

Tensor to(const Tensor& input, std::optional<DType> dtype, std::optional<Device> target, bool non_blocking, bool copy,
          std::optional<MemoryFormat>) {
  const SparseImpl& impl = impl_of(input, "to");
  const Device device = target.value_or(impl.values().device());
  TG_CHECK(device.is_cpu() || device.is_cuda(), NotImplemented, "to: there are no sparse tensors on {}", device);
  const Tensor values = tapegrad::to(impl.values(), dtype, device, non_blocking, copy);
  const Tensor indices = tapegrad::to(impl.indices(), std::nullopt, device, non_blocking, copy);
  if (values.is_same(impl.values()) && indices.is_same(impl.indices())) return input;
  const Tensor starts =
      impl.starts().defined() ? tapegrad::to(impl.starts(), std::nullopt, device, non_blocking, copy) : Tensor();
  return Tensor(
      make_intrusive<SparseImpl>(indices, values, input.sizes(), impl.coalesced(), impl.compressed(), starts));
}

Tensor sum(const Tensor& input, OptionalInts dim, bool, std::optional<DType> dtype) {
  TG_CHECK(!dim || dim->empty(), NotImplemented, "sum: a sparse tensor has only the sum over all dimensions");
  return tapegrad::sum(values(input), {}, false, dtype);
}

namespace {
// An index of entries of all matrices as (dimensions, batch ..., entries), `values` being theirs.
Tensor by_matrix(const Tensor& index, const Tensor& values, int64_t batch) {
  DimVector sizes{index.size(0)};
  for (int64_t s : values.sizes().subspan(0, static_cast<size_t>(batch) + 1)) sizes.push_back(s);
  return raw::reshape(index, sizes);
}
}  // namespace

Tensor transpose(const Tensor& input, int64_t dim0, int64_t dim1) {
  if (!input.is_sparse()) return tapegrad::transpose(input, dim0, dim1);
  const SparseImpl& impl = impl_of(input, "transpose");
  const int64_t n = input.ndim(), dims = sparse_dims(input), batch = impl.batch_dims();
  dim0 = wrap_dim(dim0, n, "transpose");
  dim1 = wrap_dim(dim1, n, "transpose");
  const auto view = [&](intrusive_ptr<SparseImpl> of) {
    of->set_base(impl.base().defined() ? impl.base() : input);
    return Tensor(std::move(of));
  };
  if (dim0 == dim1)
    return view(make_intrusive<SparseImpl>(impl.indices(), impl.values(), input.sizes(), impl.coalesced(),
                                           impl.compressed(), impl.starts()));
  const auto kind = [&](int64_t d) { return d < batch ? "Batch" : d < dims ? "Sparse" : "Dense"; };
  const bool alike = std::string_view(kind(dim0)) == kind(dim1);
  TG_CHECK(
      alike || impl.compressed() < 0 || impl.dense_dims() == 0, Runtime,
      "transpose: transpose(): hybrid sparse compressed tensors with dense dimensions are not supported: got {}({}) "
      "and {}({})",
      dim0, kind(dim0), dim1, kind(dim1));
  TG_CHECK(alike, Runtime,
           "transpose: transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense), got {}({}) "
           "and {}({})",
           dim0, kind(dim0), dim1, kind(dim1));
  TG_CHECK(dim0 < dims, NotImplemented, "transpose: dense dimensions cannot be swapped: got {} and {}", dim0, dim1);
  std::vector<Tensor> rows;
  DimVector sizes(input.sizes());
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t from = d == dim0 ? dim1 : d == dim1 ? dim0 : d;
    rows.push_back(raw::select(indices(input), 0, from));
    sizes[static_cast<size_t>(d)] = input.size(from);
  }
  Tensor index = raw::stack(rows, 0), values = impl.values(), starts = impl.starts();
  int compressed = impl.compressed();
  if (dim0 < batch) {  // the entries of the matrices change places
    index = raw::reshape(raw::transpose(by_matrix(index, values, batch), dim0 + 1, dim1 + 1), index.sizes());
    values = tapegrad::transpose(values, dim0, dim1);
    starts = raw::contiguous(raw::transpose(starts, dim0, dim1));
  } else if (compressed >= 0) {  // rows that are compressed become columns that are
    compressed = 1 - compressed;
    if (impl.in_blocks()) values = tapegrad::transpose(values, batch + 1, batch + 2);
  }
  return view(make_intrusive<SparseImpl>(index, values, sizes, false, compressed, starts));
}

Tensor t(const Tensor& input) {
  TG_CHECK(input.ndim() <= 2, Runtime, "t: expected at most 2 dimensions: got {}", format_ints(input.sizes()));
  return input.ndim() < 2 ? input : sparse::transpose(input, 0, 1);
}

namespace {
int64_t wrap_place(int64_t dim, const Tensor& input, const char* op) {
  TG_CHECK(input.ndim() > 0, Index, "{}: a tensor of no dimensions has no place to choose", op);
  return wrap_dim(dim, input.ndim(), op);
}

// Entries `chosen` of a tensor, with the coordinates that the rows say.
Tensor entries(const Tensor& input, const std::vector<Tensor>& rows, const Tensor& chosen, DimVector sizes,
               bool coalesced) {
  return Tensor(make_intrusive<SparseImpl>(raw::stack(rows, 0), tapegrad::index_select(values(input), 0, chosen),
                                           std::move(sizes), coalesced || chosen.numel() <= 1));
}

std::vector<Tensor> rows_at(const Tensor& input, const Tensor& chosen) {
  std::vector<Tensor> rows;
  for (int64_t d = 0; d < sparse_dims(input); ++d)
    rows.push_back(raw::index_select(raw::select(indices(input), 0, d), 0, chosen));
  return rows;
}
}  // namespace

Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index, bool) {
  const SparseImpl& impl = impl_of(input, "index_select");
  TG_CHECK(impl.compressed() < 0, NotImplemented,
           "index_select: a tensor of coordinates is expected: got one that is compressed by rows or columns\n"
           "use to_sparse_coo()");
  TG_CHECK(!index.is_sparse() && index.ndim() == 1 && (index.dtype() == DType::int64 || index.dtype() == DType::int32),
           Index, "index_select: expected a dense index of int64 or int32 with one dimension: got {} {}", index.dtype(),
           format_ints(index.sizes()));
  const int64_t dims = sparse_dims(input);
  dim = wrap_place(dim, input, "index_select");
  DimVector sizes(input.sizes());
  sizes[static_cast<size_t>(dim)] = index.numel();
  if (dim >= dims)
    return Tensor(make_intrusive<SparseImpl>(
        impl.indices(), tapegrad::index_select(impl.values(), dim - dims + 1, index), sizes, impl.coalesced()));
  // Indices as subscripts, which may count from the end; of a range in this dimension, for the error's sake.
  DimVector range(static_cast<size_t>(dim) + 1, 1);
  range[static_cast<size_t>(dim)] = input.size(dim);
  std::vector<Tensor> at_dim(range.size());
  at_dim.back() = index;
  const Tensor wanted = raw::reshape(
      raw::_index(raw::reshape(arange(input.size(dim), DType::int64, device(input)), range), at_dim), {index.numel()});
  // Entries in the order of their places, and the run of them that belongs to each index.
  const auto [places, order] = raw::sort(raw::select(impl.indices(), 0, dim), 0, false, true);
  const Tensor low = raw::searchsorted(places, Operand(wanted), false, false);
  const Tensor counts = raw::sub(raw::searchsorted(places, Operand(wanted), false, true), Operand(low));
  const Tensor first = raw::sub(low, Operand(raw::sub(raw::cumsum(counts, 0, {}), Operand(counts))));
  const Tensor target = raw::_repeat_interleave_self(counts);  // which index each entry is for
  const Tensor at =
      raw::add(arange(target.numel(), DType::int64, target.device()), Operand(raw::index_select(first, 0, target)));
  const Tensor chosen = raw::index_select(order, 0, at);
  std::vector<Tensor> rows = rows_at(input, chosen);
  rows[static_cast<size_t>(dim)] = target;
  return entries(input, rows, chosen, std::move(sizes), dim == 0 && impl.coalesced());
}

Tensor select(const Tensor& given, int64_t dim, int64_t index) {
  const int64_t dims = sparse_dims(given), batch = impl_of(given, "select").batch_dims();
  const bool within = given.ndim() > 0 && wrap_place(dim, given, "select") >= batch &&
                      wrap_place(dim, given, "select") < dims;  // a dimension of the matrices
  TG_CHECK(!within || batch == 0, Runtime,
           "select: selecting sparse dimensions is not supported for batched sparse compressed tensors");
  const Tensor input = within ? elements(given) : given;
  const SparseImpl& impl = impl_of(input, "select");
  dim = wrap_place(dim, input, "select");
  index = geometry::wrap_index(index, input.size(dim), dim, "select");
  DimVector sizes(input.sizes());
  sizes.erase(static_cast<size_t>(dim));
  if (dim >= dims)
    return Tensor(make_intrusive<SparseImpl>(impl.indices(),
                                             tapegrad::select(impl.values(), dim - dims + impl.leading_dims(), index),
                                             sizes, impl.coalesced(), impl.compressed(), impl.starts()));
  if (dim < batch) {  // one of the matrices
    const Tensor all = raw::select(by_matrix(impl.indices(), impl.values(), batch), dim + 1, index);
    std::vector<Tensor> kept;
    for (int64_t d = 0; d < dims; ++d)
      if (d != dim) kept.push_back(raw::reshape(raw::select(all, 0, d), {-1}));
    return Tensor(make_intrusive<SparseImpl>(raw::stack(kept, 0), tapegrad::select(impl.values(), dim, index), sizes,
                                             impl.coalesced(), impl.compressed(),
                                             raw::contiguous(raw::select(impl.starts(), dim, index))));
  }
  const Tensor chosen = raw::select(raw::nonzero(raw::eq(raw::select(impl.indices(), 0, dim), Scalar(index))), 1, 0);
  if (dims == 1)
    return tapegrad::sum(tapegrad::index_select(impl.values(), 0, chosen), IntSpan({0}), false, input.dtype());
  std::vector<Tensor> rows = rows_at(input, chosen);
  rows.erase(rows.begin() + dim);
  return entries(input, rows, chosen, std::move(sizes), impl.coalesced());
}

Tensor subscript(const Tensor& input, std::span<const Subscript> subscripts) {
  using Kind = Subscript::Kind;
  const auto whole = [](const Subscript& s) {
    return s.kind == Kind::Slice && s.start.value_or(0) == 0 && !s.stop && s.step.value_or(1) == 1;
  };
  int64_t rest = input.ndim(), dim = 0, ellipses = 0;
  for (const Subscript& s : subscripts) {
    TG_CHECK(s.kind == Kind::Int || s.kind == Kind::Ellipsis || whole(s), NotImplemented,
             "index: a sparse tensor takes integers, `:` and `...`\nuse index_select(), or to_dense()");
    const bool ellipsis = s.kind == Kind::Ellipsis;
    TG_CHECK(!ellipsis || ++ellipses == 1, Index, "index: at most one Ellipsis (...) can stand in a subscript");
    rest -= !ellipsis;
  }
  TG_CHECK(rest >= 0, Index, "index: too many indices for a tensor with {} dimensions: got {}", input.ndim(),
           input.ndim() - rest);
  Tensor out = input;
  for (const Subscript& s : subscripts) {
    if (s.kind == Kind::Ellipsis)
      dim += std::exchange(rest, 0);
    else if (s.kind == Kind::Slice)
      ++dim;
    else
      out = tapegrad::select(out, dim, s.index);
  }
  return out;
}

}  // namespace tapegrad::sparse
