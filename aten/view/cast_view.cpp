// Views that read the same bytes as another dtype, and views by explicit geometry.
#include "tapegrad/aten/kernels_view.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/tensor/checked_int.h"

namespace tapegrad {

namespace {
ViewSpec whole(const Tensor& t) { return {DimVector(t.sizes()), DimVector(t.strides()), t.storage_offset(), {}}; }

// Tensors without elements can have any sizes and strides.
int64_t product(int64_t n, int64_t ratio, const char* op) {
  const CheckedInt result = CheckedInt(n) * ratio;
  TG_CHECK(result.fits(), Runtime, "{}: {} times {} elements of the new dtype are too many", op, n, ratio);
  return result.value();
}
}  // namespace

ViewSpec view_dtype_view(const Tensor& input, DType dtype) {
  ViewSpec v = whole(input);
  v.dtype = dtype;
  const int64_t from = static_cast<int64_t>(input.itemsize()), to = static_cast<int64_t>(element_size(dtype));
  if (from == to) return v;
  TG_CHECK(input.ndim() > 0, Runtime, "view: self.dim() cannot be 0 to view {} as {} (different element sizes)",
           input.dtype(), dtype);
  const size_t last = static_cast<size_t>(input.ndim()) - 1;
  TG_CHECK(v.strides[last] == 1, Runtime, "view: self.stride(-1) must be 1 to view {} as {}: got {}", input.dtype(),
           dtype, v.strides[last]);
  if (from > to) {
    const int64_t ratio = from / to;
    for (size_t d = 0; d < last; ++d) v.strides[d] = product(v.strides[d], ratio, "view");
    v.sizes[last] = product(v.sizes[last], ratio, "view");
    v.offset = product(v.offset, ratio, "view");
    checked_numel(v.sizes, "view");
    return v;
  }
  const int64_t ratio = to / from;
  auto divides = [&](int64_t n, const char* what) {
    TG_CHECK(n % ratio == 0, Runtime, "view: {} must be divisible by {} to view {} as {}: got {}", what, ratio,
             input.dtype(), dtype, n);
    return n / ratio;
  };
  v.sizes[last] = divides(v.sizes[last], "self.size(-1)");
  v.offset = divides(v.offset, "self.storage_offset()");
  for (size_t d = 0; d < last; ++d) v.strides[d] = divides(v.strides[d], fmt::format("self.stride({})", d).c_str());
  return v;
}

ViewSpec view_as_real_view(const Tensor& input) {
  ViewSpec v = whole(input);
  for (int64_t& s : v.strides) s = product(s, 2, "view_as_real");
  v.sizes.push_back(2);
  v.strides.push_back(1);
  v.offset = product(v.offset, 2, "view_as_real");
  checked_numel(v.sizes, "view_as_real");
  v.dtype = to_real(input.dtype());
  return v;
}

ViewSpec view_as_complex_view(const Tensor& input) {
  const DType parts = input.dtype();
  TG_CHECK(parts == DType::float16 || parts == DType::float32 || parts == DType::float64, Runtime,
           "view_as_complex: expected float16, float32 or float64: got {}", parts);
  const DType dtype = parts == DType::float16 ? DType::complex32 : to_complex(parts);
  TG_CHECK(input.ndim() > 0 && input.size(-1) == 2, Runtime,
           "view_as_complex: Tensor must have a last dimension of size 2: got {}", format_ints(input.sizes()));
  if (input.numel() == 0) {  // the strides of an empty tensor mean nothing
    ViewSpec v = whole(input);
    v.sizes.erase(v.sizes.size() - 1);
    v.strides = contiguous_strides(v.sizes);
    v.offset /= 2;
    v.dtype = dtype;
    return v;
  }
  TG_CHECK(input.stride(-1) == 1, Runtime, "view_as_complex: Tensor must have a last dimension with stride 1: got {}",
           input.stride(-1));
  ViewSpec v = whole(input);
  v.sizes.erase(v.sizes.size() - 1);
  v.strides.erase(v.strides.size() - 1);
  for (int64_t& s : v.strides) {
    TG_CHECK(s % 2 == 0, Runtime, "view_as_complex: expected strides divisible by two: got {}",
             format_ints(input.strides()));
    s /= 2;
  }
  TG_CHECK(v.offset % 2 == 0, Runtime, "view_as_complex: expected a storage offset divisible by two: got {}", v.offset);
  v.offset /= 2;
  v.dtype = dtype;
  return v;
}

ViewSpec movedim_view(const Tensor& input, IntSpan source, IntSpan destination) {
  TG_CHECK(source.size() == destination.size(), Runtime,
           "movedim: Invalid source or destination dims: {} and {} differ in length", format_ints(source),
           format_ints(destination));
  const int n = input.ndim();
  DimVector order(static_cast<size_t>(n), -1);
  uint64_t taken = 0, placed = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    int64_t from = wrap_dim(source[i], n, "movedim"), to = wrap_dim(destination[i], n, "movedim");
    TG_CHECK((taken >> from & 1) == 0 && (placed >> to & 1) == 0, Runtime,
             "movedim: repeated dim in `{}`: source {}, destination {}", taken >> from & 1 ? "source" : "destination",
             format_ints(source), format_ints(destination));
    taken |= uint64_t{1} << from;
    placed |= uint64_t{1} << to;
    if (n > 0) order[to] = from;
  }
  int64_t next = 0;
  for (int64_t& d : order) {
    if (d >= 0) continue;
    while (taken >> next & 1) ++next;
    d = next++;
  }
  return permute_view(input, order);
}

ViewSpec strided_view_view(const Tensor& input, IntSpan size, IntSpan stride, int64_t storage_offset, IntSpan,
                           int64_t) {
  return as_strided_view(input, size, stride, storage_offset);
}

}  // namespace tapegrad
