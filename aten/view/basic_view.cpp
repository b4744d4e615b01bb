// View functions that rearrange whole dimensions: each computes the geometry of the result in the storage of its input.
#include "tapegrad/aten/kernels_view.h"
#include "tapegrad/aten/view/geometry.h"

namespace tapegrad {

namespace {
ViewSpec whole(const Tensor& t) { return {DimVector(t.sizes()), DimVector(t.strides()), t.storage_offset(), {}}; }
}  // namespace

ViewSpec alias_view(const Tensor& input) { return whole(input); }

ViewSpec view_view(const Tensor& input, IntSpan size) {
  DimVector sizes = geometry::infer_sizes(size, input.numel(), "view");
  const TensorImpl& t = *input.impl();
  if (t.is_contiguous() && t.numel() > 0 && (t.ndim() == 0 || t.stride(t.ndim() - 1) == 1)) {  // needs no analysis
    ViewSpec v{std::move(sizes), {}, t.offset(), {}};
    v.strides.resize(v.sizes.size());
    int64_t stride = 1;
    for (size_t d = v.sizes.size(); d-- > 0; stride *= v.sizes[d]) v.strides[d] = stride;
    return v;
  }
  auto strides = geometry::view_strides(input.sizes(), input.strides(), sizes);
  TG_CHECK(strides.has_value(), Runtime,
           "view: shape {} is not compatible with the input's sizes {} and strides {}\n"
           "use reshape, which copies where it must",
           format_ints(size), format_ints(input.sizes()), format_ints(input.strides()));
  return {std::move(sizes), std::move(*strides), input.storage_offset(), {}};
}

ViewSpec transpose_view(const Tensor& input, int64_t dim0, int64_t dim1) {
  ViewSpec v = whole(input);
  dim0 = wrap_dim(dim0, input.ndim(), "transpose");
  dim1 = wrap_dim(dim1, input.ndim(), "transpose");
  if (dim0 == dim1) return v;
  std::swap(v.sizes[dim0], v.sizes[dim1]);
  std::swap(v.strides[dim0], v.strides[dim1]);
  return v;
}

ViewSpec t_view(const Tensor& input) {
  TG_CHECK(input.ndim() <= 2, Runtime, "t: expected a tensor with at most 2 dimensions: got {}",
           format_ints(input.sizes()));
  return input.ndim() < 2 ? whole(input) : transpose_view(input, 0, 1);
}

ViewSpec permute_view(const Tensor& input, IntSpan dims) {
  TG_CHECK(dims.size() == static_cast<size_t>(input.ndim()), Runtime,
           "permute: expected one entry per dimension: got {} for sizes {}", format_ints(dims),
           format_ints(input.sizes()));
  ViewSpec v = whole(input);
  uint64_t seen = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t d = wrap_dim(dims[i], input.ndim(), "permute");
    TG_CHECK((seen >> d & 1) == 0, Runtime, "permute: dimension {} appears twice: {}", d, format_ints(dims));
    seen |= uint64_t{1} << d;
    v.sizes[i] = input.impl()->size(static_cast<int>(d));
    v.strides[i] = input.impl()->stride(static_cast<int>(d));
  }
  return v;
}

ViewSpec squeeze_view(const Tensor& input, OptionalInts dim) {
  // An empty tuple squeezes nothing, an absent one everything.
  uint64_t mask = dim && dim->empty() ? 0 : dim_mask(dim, input.ndim(), "squeeze");
  ViewSpec v;
  v.offset = input.storage_offset();
  for (int d = 0; d < input.ndim(); ++d) {
    if (input.impl()->size(d) == 1 && (mask >> d & 1)) continue;
    v.sizes.push_back(input.impl()->size(d));
    v.strides.push_back(input.impl()->stride(d));
  }
  return v;
}

ViewSpec unsqueeze_view(const Tensor& input, int64_t dim) {
  int64_t d = wrap_dim(dim, input.ndim() + 1, "unsqueeze");
  ViewSpec v = whole(input);
  TG_CHECK(input.ndim() < kMaxDims, Runtime, "unsqueeze: a tensor has at most {} dimensions", kMaxDims);
  int64_t stride = d < input.ndim() ? v.sizes[d] * v.strides[d] : 1;
  v.sizes.insert(d, 1);
  v.strides.insert(d, stride);
  return v;
}

ViewSpec expand_view(const Tensor& input, IntSpan size, bool /*implicit*/) {
  int64_t extra = static_cast<int64_t>(size.size()) - input.ndim();
  TG_CHECK(extra >= 0, Runtime, "expand: the new shape {} has fewer dimensions than the input's {}", format_ints(size),
           format_ints(input.sizes()));
  ViewSpec v{DimVector(size), DimVector(size.size()), input.storage_offset(), {}};
  for (int64_t d = 0; d < static_cast<int64_t>(size.size()); ++d) {
    int64_t from = d - extra;
    if (from < 0) {
      TG_CHECK(size[d] >= 0, Runtime, "expand: size {} is not allowed in a new leading dimension: got {}", size[d],
               format_ints(size));
      continue;
    }
    int64_t old = input.impl()->size(static_cast<int>(from));
    if (size[d] == -1) v.sizes[d] = old;
    TG_CHECK(
        v.sizes[d] >= 0 && (v.sizes[d] == old || old == 1), Runtime,
        "expand: The expanded size of the tensor ({}) must match the existing size ({}) at non-singleton dimension "
        "{}: sizes {}, expanded to {}",
        v.sizes[d], old, from, format_ints(input.sizes()), format_ints(size));
    v.strides[d] = v.sizes[d] == old ? input.impl()->stride(static_cast<int>(from)) : 0;
  }
  // Strides of new leading dimensions of size 1 are written as for a contiguous tensor.
  for (int64_t d = extra - 1; d >= 0; --d)
    v.strides[d] = v.sizes[d] == 1 && d + 1 < static_cast<int64_t>(size.size()) ? v.sizes[d + 1] * v.strides[d + 1] : 0;
  checked_numel(v.sizes, "expand");
  return v;
}

ViewSpec diagonal_view(const Tensor& input, int64_t offset, int64_t dim1, int64_t dim2) {
  int64_t a = wrap_dim(dim1, input.ndim(), "diagonal");
  int64_t b = wrap_dim(dim2, input.ndim(), "diagonal");
  TG_CHECK(a != b, Runtime, "diagonal: the two dimensions must differ: got {} and {}", dim1, dim2);
  TG_CHECK(input.ndim() >= 2, Runtime, "diagonal: expected at least 2 dimensions: got {}", format_ints(input.sizes()));
  ViewSpec v = whole(input);
  int64_t rows = v.sizes[a], columns = v.sizes[b];
  int64_t length;
  if (offset >= 0)
    length = offset >= columns ? 0 : std::min(rows, columns - offset);
  else
    length = offset <= -rows ? 0 : std::min(rows + offset, columns);
  int64_t stride = v.strides[a] + v.strides[b];
  if (length > 0) v.offset += offset >= 0 ? offset * v.strides[b] : -offset * v.strides[a];
  v.sizes.erase(std::max(a, b));
  v.strides.erase(std::max(a, b));
  v.sizes.erase(std::min(a, b));
  v.strides.erase(std::min(a, b));
  v.sizes.push_back(length);
  v.strides.push_back(stride);
  return v;
}

ViewSpec as_strided_view(const Tensor& input, IntSpan size, IntSpan stride, std::optional<int64_t> storage_offset) {
  TG_CHECK(size.size() == stride.size(), Runtime,
           "as_strided: mismatch in length of strides and shape: sizes {}, strides {}", format_ints(size),
           format_ints(stride));
  for (int64_t s : stride)
    TG_CHECK(s >= 0, Runtime, "as_strided: strides must not be negative: got {}", format_ints(stride));
  int64_t offset = storage_offset.value_or(input.storage_offset());
  TG_CHECK(offset >= 0, Runtime, "as_strided: the storage offset must not be negative: got {}", offset);
  checked_numel(size, "as_strided");
  check_in_bounds(size, stride, offset, input.dtype(), input.impl()->storage()->nbytes(), "as_strided");
  return {DimVector(size), DimVector(stride), offset, {}};
}

}  // namespace tapegrad
