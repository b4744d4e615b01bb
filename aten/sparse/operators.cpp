#include "tapegrad/aten/sparse/operators.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"

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

Tensor mul(const Tensor& input, const Operand& other) {
  const Tensor &a = input.is_sparse() ? input : other.tensor(), &b = input.is_sparse() ? other.tensor() : input;
  if (!b.is_sparse() && b.ndim() == 0) return with_values(a, tapegrad::mul(values(a), Operand(b)));
  TG_CHECK(!b.is_sparse() && b.sizes() == a.sizes(), NotImplemented,
           "mul: a sparse tensor goes with a number or a dense tensor of its sizes: got sizes {} and {}",
           format_ints(a.sizes()), format_ints(b.sizes()));
  check_same_device("mul", device(a), b.device());
  std::vector<Tensor> at;
  for (int64_t d = 0; d < sparse_dims(a); ++d) at.push_back(raw::select(indices(a), 0, d));
  return with_values(a, tapegrad::mul(values(a), tapegrad::_index(b, at)));
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

Tensor transpose(const Tensor& input, int64_t dim0, int64_t dim1) {
  if (!input.is_sparse()) return tapegrad::transpose(input, dim0, dim1);
  const int64_t n = input.ndim(), dims = sparse_dims(input);
  dim0 = wrap_dim(dim0, n, "transpose");
  dim1 = wrap_dim(dim1, n, "transpose");
  if (dim0 == dim1) return input;
  TG_CHECK(dim0 < dims && dim1 < dims, NotImplemented,
           "transpose: only sparse dimensions can be swapped: got {} and {}", dim0, dim1);
  std::vector<Tensor> rows;
  DimVector sizes(input.sizes());
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t from = d == dim0 ? dim1 : d == dim1 ? dim0 : d;
    rows.push_back(raw::select(indices(input), 0, from));
    sizes[static_cast<size_t>(d)] = input.size(from);
  }
  const SparseImpl& impl = impl_of(input, "transpose");  // rows that are compressed become columns that are
  return Tensor(make_intrusive<SparseImpl>(raw::stack(rows, 0), impl.values(), sizes, false,
                                           impl.compressed() < 0 ? -1 : 1 - impl.compressed(), impl.starts()));
}

Tensor t(const Tensor& input) {
  TG_CHECK(input.ndim() <= 2, Runtime, "t: expected at most 2 dimensions: got {}", format_ints(input.sizes()));
  return input.ndim() < 2 ? input : sparse::transpose(input, 0, 1);
}

}  // namespace tapegrad::sparse
