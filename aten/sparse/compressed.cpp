// Matrices compressed by rows or columns, of elements (CSR, CSC) or of blocks (BSR, BSC), and batches of them.
#include <algorithm>

#include "tapegrad/aten/functions_calculus.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/sparse/blocks.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/c10/tensor/product.h"

namespace tapegrad::sparse {
namespace {

Tensor range(int64_t count, Device device) { return raw::_arange(0, count, 1, DType::int64, device); }

// The index with its last two rows exchanged where the form is one by columns.
Tensor by_order(const Tensor& index, const Form& form) {
  if (form.dim == 0) return index;
  std::vector<Tensor> rows;
  for (int64_t d = 0; d < index.size(0); ++d) rows.push_back(raw::select(index, 0, d));
  std::swap(rows[rows.size() - 1], rows[rows.size() - 2]);
  return raw::stack(rows, 0);
}

void check_form(const Form& form, IntSpan sizes, size_t row) {
  if (!form.in_blocks()) return;
  for (size_t d = 0; d < 2; ++d)
    TG_CHECK(form.block[d] > 0 && sizes[row + d] % form.block[d] == 0, Runtime,
             "to_sparse_{}: tensor sparse size ({},{}) must be divisible by given blocksize ({},{})", form.name(),
             sizes[row], sizes[row + 1], form.block[0], form.block[1]);
}

// A tensor of entries that are in the form's order: index (batch dimensions + 2, entries of all), values (the same,
// ...).
Tensor packed(const Tensor& index, Tensor values, const Form& form, IntSpan sizes) {
  const size_t batch = static_cast<size_t>(index.size(0)) - 2;
  const DimVector along = places_along(form, sizes, batch + 2);
  const IntSpan batches = IntSpan(along).subspan(0, batch);
  const int64_t n = along[batch + static_cast<size_t>(form.dim)], count = product(batches);
  Tensor by = raw::select(index, 0, static_cast<int64_t>(batch) + form.dim);
  if (batch > 0)
    by = raw::add(raw::mul(flat_index(raw::narrow(index, 0, 0, static_cast<int64_t>(batch)), batches), n), by);
  Tensor starts = raw::searchsorted(raw::contiguous(by), range(count * n + 1, by.device()));
  if (batch > 0) {  // each from its own 0
    const int64_t each = count == 0 ? 0 : index.size(1) / count;
    const Tensor matrix = raw::unsqueeze(range(count, by.device()), 1);
    const Tensor at = raw::add(raw::mul(matrix, n), range(n + 1, by.device()));
    starts = raw::sub(raw::reshape(raw::index_select(starts, 0, raw::reshape(at, {-1})), {count, n + 1}),
                      raw::mul(matrix, each));
    const Tensor ends = raw::contiguous(raw::to(raw::select(starts, 1, n), std::nullopt, Device()));
    TG_CHECK(std::ranges::all_of(std::span(ends.data<int64_t>(), static_cast<size_t>(count)),
                                 [&](int64_t end) { return end == each; }),
             Runtime, "to_sparse_{}: Expect the same number of specified elements per batch: got {} in {} matrices",
             form.name(), index.size(1), count);
    DimVector shape(batches), value_sizes(batches);
    shape.push_back(n + 1);
    value_sizes.push_back(each);
    for (int64_t s : values.sizes().subspan(1)) value_sizes.push_back(s);
    starts = raw::reshape(starts, shape);
    values = reshape(values, value_sizes);
  }
  return Tensor(make_intrusive<SparseImpl>(index, values, sizes, form.dim == 0 && !form.in_blocks(),
                                           static_cast<int>(form.dim), starts));
}

// The same of entries in any order, those of one place added. `within`: which element of its block each one is, where
// values are of elements and the form is in blocks.
Tensor sorted(const Tensor& index, const Tensor& values, const Tensor& within, const Form& form, IntSpan sizes) {
  DimVector along = places_along(form, sizes, static_cast<size_t>(index.size(0)));
  if (form.dim == 1) std::swap(along[along.size() - 1], along[along.size() - 2]);
  const auto unique = raw::_unique(flat_index(by_order(index, form), along), true, true);
  const Tensor &places = std::get<0>(unique), &entry = std::get<1>(unique);
  const int64_t area = within.defined() ? form.block[0] * form.block[1] : 1;
  const Tensor target = within.defined() ? raw::add(raw::mul(entry, area), within) : entry;
  DimVector shape(values.sizes());
  shape[0] = places.numel() * area;
  Tensor sums = index_add(zeros(shape, values.dtype(), values.device()), 0, target, values);
  if (within.defined()) {
    DimVector blocks{places.numel(), form.block[0], form.block[1]};
    for (int64_t s : values.sizes().subspan(1)) blocks.push_back(s);
    sums = reshape(sums, blocks);
  }
  return packed(by_order(index_of_flat(places, along), form), sums, form, sizes);
}

// Sorted by rows, each place once: what every index (2, entries) of the CPU is asked for that a program has compressed.
bool sorted_by_rows(const Tensor& index) {
  if (!index.is_cpu() || index.size(0) != 2) return false;
  const int64_t n = index.size(1), *row = index.data<int64_t>(), *column = row + n;
  for (int64_t k = 1; k < n; ++k)
    if (row[k] < row[k - 1] || (row[k] == row[k - 1] && column[k] <= column[k - 1])) return false;
  return true;
}

constexpr const char* kStarts[] = {"crow_indices", "ccol_indices"};
constexpr const char* kOthers[] = {"col_indices", "row_indices"};
constexpr const char* kCounts[] = {"nrows", "ncols"};

// Starts (batches, n + 1) and the other indices (batches, entries), both contiguous, of int64, on the CPU. Without
// `whole` only what keeps an index inside: from 0 to the number of entries, never falling.
void check_parts(int64_t dim, const std::string& op, const Tensor& starts, const Tensor& others, int64_t most,
                 bool whole) {
  const int64_t n = starts.size(1) - 1, entries = others.size(1);
  for (int64_t b = 0; b < starts.size(0); ++b) {
    const int64_t *start = starts.data<int64_t>() + b * (n + 1), *other = others.data<int64_t>() + b * entries;
    TG_CHECK(start[0] == 0, Runtime, "{}: `{}[..., 0] == 0` is not satisfied: got {}", op, kStarts[dim], start[0]);
    TG_CHECK(start[n] == entries, Runtime, "{}: `{}[..., -1] == nnz` is not satisfied: got {} and {}", op, kStarts[dim],
             start[n], entries);
    for (int64_t i = 0; i < n; ++i)
      TG_CHECK(start[i] <= start[i + 1] && (!whole || start[i + 1] - start[i] <= most), Runtime,
               "{}: `0 <= {}[..., 1:] - {}[..., :-1] <= {}` is not satisfied: got {} before {}", op, kStarts[dim],
               kStarts[dim], kCounts[1 - dim], start[i], start[i + 1]);
    for (int64_t k = 0; k < entries; ++k)
      TG_CHECK(other[k] >= 0 && other[k] < most, Runtime, "{}: `0 <= {} < {}` is not satisfied: got {} of {}", op,
               kOthers[dim], kCounts[1 - dim], other[k], most);
    for (int64_t i = 0; whole && i < n; ++i)
      for (int64_t k = start[i] + 1; k < start[i + 1]; ++k)
        TG_CHECK(other[k - 1] < other[k], Runtime,
                 "{}: `{}[..., {}[..., i - 1]:{}[..., i]] for all i = 1, ..., {} are sorted and distinct along the "
                 "last dimension values` is not satisfied: got {} before {}",
                 op, kOthers[dim], kStarts[dim], kStarts[dim], kCounts[dim], other[k - 1], other[k]);
  }
}

Tensor on_host(const Tensor& t) { return raw::contiguous(raw::to(t, DType::int64, Device())); }

}  // namespace

DimVector places_along(const Form& form, IntSpan sizes, size_t dims) {
  DimVector along(sizes.subspan(0, dims));
  if (form.in_blocks())
    for (size_t d = 0; d < 2; ++d) along[dims - 2 + d] /= form.block[d];
  return along;
}

const char* Form::name() const noexcept {
  constexpr const char* kNames[] = {"csr", "csc", "bsr", "bsc"};
  return kNames[dim + (in_blocks() ? 2 : 0)];
}

Form form_of(const Tensor& t) {
  const SparseImpl& impl = impl_of(t, "layout");
  Form form{impl.compressed()};
  if (impl.in_blocks()) form.block = {impl.block(0), impl.block(1)};
  return form;
}

Tensor divided_in_blocks(const Tensor& dense, int64_t dim, std::array<int64_t, 2> block) {
  DimVector sizes;
  for (int64_t d = 0; d < dense.ndim(); ++d) {
    const int64_t by = d == dim || d == dim + 1 ? block[static_cast<size_t>(d - dim)] : 0;
    sizes.push_back(by == 0 ? dense.size(d) : dense.size(d) / by);
    if (by != 0) sizes.push_back(by);
  }
  return tapegrad::transpose(reshape(dense, sizes), dim + 1, dim + 2);
}

Tensor joined_blocks(const Tensor& blocks, IntSpan along, IntSpan sizes) {
  DimVector divided(along);
  for (int64_t s : blocks.sizes().subspan(1)) divided.push_back(s);
  const auto dims = static_cast<int64_t>(along.size());
  return reshape(tapegrad::transpose(reshape(blocks, divided), dims - 1, dims), sizes);
}

namespace {
Tensor compressed_anew(const Tensor& t, const Form& form) {
  const SparseImpl& impl = impl_of(t, "to_sparse");
  const Form now = form_of(t);
  if (now.dim == form.dim && now.block == form.block) return t;
  const int64_t batch = impl.batch_dims();
  TG_CHECK(t.ndim() >= 2 && sparse_dims(t) == batch + 2, Runtime,
           "to_sparse_{}: expected a matrix with two sparse dimensions: got sizes {}, of which {} are sparse",
           form.name(), format_ints(t.sizes()), sparse_dims(t));
  check_form(form, t.sizes(), static_cast<size_t>(batch));
  TG_CHECK(now.block == form.block || (!now.in_blocks() && batch == 0), Runtime,
           "to_sparse_{}: conversion from {} with blocks of {} by {} to blocks of {} by {} is not supported{}\n"
           "use to_dense() first",
           form.name(), now.dim < 0 ? "coo" : now.name(), impl.block(0), impl.block(1),
           std::max<int64_t>(form.block[0], 1), std::max<int64_t>(form.block[1], 1),
           now.in_blocks() ? "" : " for batched inputs");
  const Tensor& index = impl.indices();
  if (now.block != form.block) {  // elements, of which blocks are made
    std::vector<Tensor> rows, rest;
    for (int64_t d = 0; d < 2; ++d) {
      const Tensor row = raw::select(index, 0, d);
      rows.push_back(raw::div(row, form.block[static_cast<size_t>(d)], "floor"));
      rest.push_back(raw::remainder(row, form.block[static_cast<size_t>(d)]));
    }
    return sorted(raw::stack(rows, 0), impl.values(), raw::add(raw::mul(rest[0], form.block[1]), rest[1]), form,
                  t.sizes());
  }
  if (impl.coalesced() && form.dim == 0) return packed(index, entries(t), form, t.sizes());
  return sorted(index, entries(t), {}, form, t.sizes());
}
}  // namespace

Tensor compress(const Tensor& t, const Form& form) {
  const Tensor made = compressed_anew(t, form);
  const Tensor &before = impl_of(t, "to_sparse").starts(), &starts = impl_of(made, "to_sparse").starts();
  if (!before.defined() || before.dtype() == starts.dtype()) return made;
  const SparseImpl& impl = impl_of(made, "to_sparse");  // int32 stays int32
  return Tensor(make_intrusive<SparseImpl>(impl.indices(), impl.values(), made.sizes(), impl.coalesced(),
                                           impl.compressed(), raw::to(starts, before.dtype())));
}

Tensor compress_dense(const Tensor& t, const Form& form, int64_t dense_dims) {
  const int64_t batch = t.ndim() - 2 - dense_dims;
  TG_CHECK(dense_dims >= 0 && batch >= 0, Index,
           "to_sparse_{}: expected two dimensions at least besides {} dense ones: got sizes {}", form.name(),
           dense_dims, format_ints(t.sizes()));
  TG_CHECK(product(t.sizes().subspan(0, static_cast<size_t>(batch))) != 0, Runtime,
           "to_sparse_{}: Expected product of batch dimensions to be non-zero: got sizes {}", form.name(),
           format_ints(t.sizes()));
  check_form(form, t.sizes(), static_cast<size_t>(batch));
  Tensor places = form.in_blocks() ? divided_in_blocks(t, batch, form.block) : t;
  if (form.dim == 1) places = tapegrad::transpose(places, batch, batch + 1);
  const Tensor found = from_dense(places, batch + 2);
  return packed(by_order(indices(found), form), values(found), form, t.sizes());
}

Tensor make_compressed(int64_t dim, bool in_blocks, const Tensor& starts, const Tensor& others, const Tensor& values,
                       IntSpan sizes, bool whole) {
  Form form{dim, {in_blocks ? 1 : 0, in_blocks ? 1 : 0}};
  const std::string op = fmt::format("sparse_{}_tensor", form.name());
  for (const Tensor* part : {&starts, &others, &values})
    TG_CHECK(part->is_cpu() || part->is_cuda(), Runtime, "{}: expected {} to be a strided tensor with memory: got {}",
             op,
             part == &starts   ? kStarts[dim]
             : part == &others ? kOthers[dim]
                               : "values",
             part->device());
  TG_CHECK(starts.ndim() >= 1, Runtime, "{}: {} must have dimensionality >= 1 but got {}", op, kStarts[dim],
           starts.ndim());
  TG_CHECK(starts.ndim() == others.ndim(), Runtime,
           "{}: {} and {} dimensionalities must be equal but got {} and {}, respectively", op, kStarts[dim],
           kOthers[dim], starts.ndim(), others.ndim());
  const auto batch = static_cast<size_t>(starts.ndim() - 1), lead = batch + (in_blocks ? 3 : 1);
  TG_CHECK(values.sizes().size() >= lead, Runtime,
           "{}: values must have dimensionality > sum of batch and block dimensionalities (={} + {}) but got {}", op,
           batch, in_blocks ? 2 : 0, values.ndim());
  const size_t dense = values.sizes().size() - lead;
  TG_CHECK(sizes.size() == batch + 2 + dense, Runtime,
           "{}: tensor dimensionality must be sum of batch, base, and dense dimensionalities (={} + 2 + {}) but got {}",
           op, batch, dense, sizes.size());
  checked_numel(sizes, op.c_str());
  const IntSpan batches = sizes.subspan(0, batch);
  for (const Tensor* part : {&starts, &others, &values})
    TG_CHECK(
        std::ranges::equal(part->sizes().subspan(0, batch), batches), Runtime,
        "{}: all batch dimensions of {} (={}), {} (={}), and values (={}) must be equal to tensor batch dimensions "
        "(={})",
        op, kStarts[dim], format_ints(starts.sizes().subspan(0, batch)), kOthers[dim],
        format_ints(others.sizes().subspan(0, batch)), format_ints(values.sizes().subspan(0, batch)),
        format_ints(batches));
  for (size_t d = 0; in_blocks && d < 2; ++d) {
    form.block[d] = values.sizes()[batch + 1 + d];
    TG_CHECK(form.block[d] > 0 && sizes[batch + d] % form.block[d] == 0, Runtime,
             "{}: tensor shape[{}] (={}) must be divisible with blocksize[{}] (={}) as defined by values shape", op,
             batch + d, sizes[batch + d], d, form.block[d]);
  }
  const DimVector along = places_along(form, sizes, batch + 2);
  const int64_t n = along[batch + static_cast<size_t>(dim)], most = along[batch + 1 - static_cast<size_t>(dim)];
  const int64_t entries = values.sizes()[batch], count = product(batches);
  TG_CHECK(starts.size(-1) == n + 1, Runtime,
           "{}: {}.shape[-1] must be equal to the number of {} + 1 (={}), but got {}", op, kStarts[dim],
           dim == 0 ? (in_blocks ? "row blocks" : "rows") : (in_blocks ? "column blocks" : "columns"), n + 1,
           starts.size(-1));
  TG_CHECK(others.size(-1) == entries, Runtime,
           "{}: {}.shape[-1] must be equal to nnz (={}) as defined by values.shape[{}], but got {}", op, kOthers[dim],
           entries, batch, others.size(-1));
  TG_CHECK(std::ranges::equal(values.sizes().subspan(lead), sizes.subspan(batch + 2)), Runtime,
           "{}: values must end with the dense sizes {}: got {}", op, format_ints(sizes.subspan(batch + 2)),
           format_ints(values.sizes()));
  TG_CHECK(starts.dtype() == others.dtype(), Runtime, "{}: {} and {} must have the same dtype, bot got {} and {}", op,
           kStarts[dim], kOthers[dim], starts.dtype(), others.dtype());
  TG_CHECK(starts.dtype() == DType::int64 || starts.dtype() == DType::int32, Runtime,
           "{}: {} and {} dtype must be Int or Long, but got {}", op, kStarts[dim], kOthers[dim], starts.dtype());
  check_same_device(op.c_str(), starts.device(), values.device());
  check_same_device(op.c_str(), others.device(), values.device());

  const Tensor first = raw::reshape(raw::contiguous(raw::to(starts, DType::int64)), {count, n + 1});
  const Tensor at = raw::reshape(raw::to(others, DType::int64), {count, entries});
  const bool host = values.is_cpu() || whole;
  check_parts(dim, op, on_host(first), host ? on_host(at) : raw::zeros({count, entries}, DType::int64), host ? most : 1,
              whole);
  DimVector rows(batches);
  rows.push_back(n);
  const Tensor by = raw::_repeat_interleave_self(raw::reshape(diff(first), {-1}), count * entries);
  const Tensor parts[] = {index_of_flat(by, rows), raw::reshape(at, {1, -1})};
  const Tensor index = raw::contiguous(by_order(raw::cat(parts, 0), form));
  if (!host) check_in_bounds(index, along, op.c_str());
  const Tensor kept = raw::contiguous(starts.dtype() == DType::int32 ? starts : raw::reshape(first, starts.sizes()));
  return Tensor(make_intrusive<SparseImpl>(index, values, sizes, dim == 0 && !in_blocks && sorted_by_rows(index),
                                           static_cast<int>(dim), kept));
}

Tensor values_at(const Tensor& dense, const Tensor& t) {
  const SparseImpl& impl = impl_of(t, "values_at");
  TG_CHECK(dense.sizes() == t.sizes(), Runtime, "a sparse tensor of sizes {} meets a dense one of {}",
           format_ints(t.sizes()), format_ints(dense.sizes()));
  const int64_t dims = sparse_dims(t);
  const Tensor places = impl.in_blocks() ? divided_in_blocks(dense, dims - 2, form_of(t).block) : dense;
  std::vector<Tensor> at;
  for (int64_t d = 0; d < dims; ++d) at.push_back(raw::select(impl.indices(), 0, d));
  return reshape(tapegrad::_index(places, at), impl.values().sizes());
}

Tensor sum_of_compressed(const Tensor& a, const Tensor& given) {
  const Form form = form_of(a);
  const SparseImpl& other = impl_of(given, "add");
  const bool alike = form.block == form_of(given).block && impl_of(a, "add").batch_dims() == other.batch_dims();
  const Tensor b = alike ? given : compress(elements(given), form);
  const Tensor index[] = {indices(a), indices(b)}, terms[] = {entries(a), entries(b)};
  if (impl_of(b, "add").compressed() == form.dim && index[0].sizes() == index[1].sizes() &&
      (index[0].is_same(index[1]) || tapegrad::equal(index[0], index[1])))
    return with_values(a, tapegrad::add(values(a), values(b)));
  return sorted(raw::cat(index, 1), cat(terms, 0), {}, form, a.sizes());
}

}  // namespace tapegrad::sparse
