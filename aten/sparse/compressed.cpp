// Matrices compressed by rows (CSR) or by columns (CSC).
#include "tapegrad/aten/functions_calculus.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/sparse/operators.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"

namespace tapegrad::sparse {
namespace {

constexpr const char* kNames[] = {"sparse_csr_tensor", "sparse_csc_tensor"};
constexpr const char* kStarts[] = {"crow_indices", "ccol_indices"};

// From 0 to the number of entries, never falling; starts is contiguous, on the CPU, of int64.
void check_starts(int64_t dim, const Tensor& starts, int64_t entries) {
  const int64_t* p = starts.data<int64_t>();
  const int64_t n = starts.size(0);
  TG_CHECK(p[0] == 0 && p[n - 1] == entries, Runtime, "{}: {} must begin with 0 and end with nnz, {}: got {} and {}",
           kNames[dim], kStarts[dim], entries, p[0], p[n - 1]);
  for (int64_t i = 1; i < n; ++i)
    TG_CHECK(p[i - 1] <= p[i], Runtime, "{}: {} must not fall: got {} before {}", kNames[dim], kStarts[dim], p[i - 1],
             p[i]);
}

// Sorted by rows, each place once: what every index (2, entries) of the CPU is asked for that a program has compressed.
bool sorted_by_rows(const Tensor& index) {
  if (!index.is_cpu()) return false;
  const int64_t n = index.size(1), *row = index.data<int64_t>(), *column = row + n;
  for (int64_t k = 1; k < n; ++k)
    if (row[k] < row[k - 1] || (row[k] == row[k - 1] && column[k] <= column[k - 1])) return false;
  return true;
}

}  // namespace

Tensor compress(const Tensor& t, int64_t dim) {
  const SparseImpl& impl = impl_of(t, "compress");
  if (impl.compressed() == dim) return t;
  TG_CHECK(t.ndim() >= 2 && sparse_dims(t) == 2, Runtime,
           "to_sparse_{}: expected a matrix with two sparse dimensions: got sizes {}, of which {} are sparse",
           dim == 0 ? "csr" : "csc", format_ints(t.sizes()), sparse_dims(t));
  // By columns: those of the transposed matrix by rows.
  const Tensor rows = coalesce(dim == 0 ? t : sparse::transpose(in_coordinates(t), 0, 1));
  const Tensor by = raw::contiguous(raw::select(indices(rows), 0, 0));
  const Tensor starts = raw::searchsorted(by, raw::_arange(0, t.size(dim) + 1, 1, DType::int64, by.device()));
  const Tensor index = dim == 0 ? indices(rows) : raw::flip(indices(rows), IntSpan({0}));
  return Tensor(make_intrusive<SparseImpl>(index, values(rows), t.sizes(), dim == 0, static_cast<int>(dim), starts));
}

Tensor make_compressed(int64_t dim, const Tensor& starts, const Tensor& others, const Tensor& values, IntSpan sizes) {
  const char* op = kNames[dim];
  for (const Tensor* part : {&starts, &others, &values})
    TG_CHECK(part->is_cpu() || part->is_cuda(), Runtime, "{}: its parts must be dense and have memory: got {}", op,
             part->device());
  TG_CHECK(starts.ndim() == 1 && others.ndim() == 1 && is_integral(starts.dtype()) && starts.dtype() == others.dtype(),
           NotImplemented, "{}: expected two vectors of integers of one dtype, a single matrix: got {} {} and {} {}",
           op, starts.dtype(), format_ints(starts.sizes()), others.dtype(), format_ints(others.sizes()));
  TG_CHECK(sizes.size() >= 2 && sizes[0] >= 0 && sizes[1] >= 0, Runtime, "{}: expected the sizes of a matrix: got {}",
           op, format_ints(sizes));
  TG_CHECK(starts.size(0) == sizes[static_cast<size_t>(dim)] + 1, Runtime,
           "{}: {} must have {} elements for sizes {}: got {}", op, kStarts[dim], sizes[static_cast<size_t>(dim)] + 1,
           format_ints(sizes), starts.size(0));
  check_same_device(op, starts.device(), values.device());
  check_same_device(op, others.device(), values.device());
  const Tensor first = raw::contiguous(raw::to(starts, DType::int64));
  check_starts(dim, raw::to(first, std::nullopt, Device()), others.size(0));
  const Tensor by = raw::_repeat_interleave_self(diff(first), others.size(0)), at = raw::to(others, DType::int64);
  const Tensor index = raw::stack(dim == 0 ? std::vector<Tensor>{by, at} : std::vector<Tensor>{at, by}, 0);
  const Tensor checked = make(index, values, sizes, false);  // the other index, and what values must be
  const SparseImpl& impl = impl_of(checked, op);
  const Tensor kept = starts.dtype() == DType::int32 ? raw::contiguous(starts) : first;
  return Tensor(make_intrusive<SparseImpl>(impl.indices(), values, sizes, dim == 0 && sorted_by_rows(impl.indices()),
                                           static_cast<int>(dim), kept));
}

}  // namespace tapegrad::sparse
