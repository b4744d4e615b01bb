#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/kernels_join.h"

namespace tapegrad {

namespace {

// The dtype that holds them all, with the rules of arithmetic: zero-dimensional ones count by category only
// where others have dimensions.
DType common_dtype(TensorSpan tensors) {
  auto category = [](DType t) { return is_complex(t) ? 3 : is_floating_point(t) ? 2 : is_integral(t) ? 1 : 0; };
  std::optional<DType> with_dims, without;
  for (const Tensor& t : tensors) {
    auto& slot = t.ndim() > 0 ? with_dims : without;
    if (slot != t.dtype()) slot = slot ? promote_types(*slot, t.dtype()) : t.dtype();
  }
  if (!with_dims) return *without;
  if (without && category(*without) > category(*with_dims)) return promote_types(*with_dims, *without);
  return *with_dims;
}

void check_devices(TensorSpan tensors, const char* op) {
  for (const Tensor& t : tensors)
    TG_CHECK(t.device() == tensors[0].device(), Runtime, "{}: expected all tensors on one device: got {} and {}", op,
             tensors[0].device(), t.device());
}

// The strides of tensors joined to `sizes`: channels_last where all of them are, else none are given.
DimVector joined_strides(TensorSpan tensors, IntSpan sizes) {
  for (const Tensor& t : tensors)
    if (!has_channels_last(t)) return {};
  return channels_last_strides(sizes);
}

bool is_legacy_empty(const Tensor& t) { return t.ndim() == 1 && t.numel() == 0; }

// The usual case: vectors or matrices of one dtype, whose sizes agree but for `dim`. Nothing for all others.
std::optional<TensorSpec> shape_of_alike(TensorSpan tensors, int64_t dim) {
  const Tensor& head = tensors[0];
  const int n = head.ndim();
  if (n > 2 || dim < -n || dim >= n) return std::nullopt;
  const int d = static_cast<int>(dim < 0 ? dim + n : dim);
  int64_t joined = 0;
  for (const Tensor& t : tensors) {
    if (t.ndim() != n || t.dtype() != head.dtype() || t.device() != head.device()) return std::nullopt;
    for (int k = 0; k < n; ++k)
      if (k != d && t.impl()->size(k) != head.impl()->size(k)) return std::nullopt;
    if (__builtin_add_overflow(joined, t.impl()->size(d), &joined)) return std::nullopt;
  }
  TensorSpec spec{head.sizes(), head.dtype(), head.device(), {}};
  spec.sizes[static_cast<size_t>(d)] = joined;
  return spec;
}

}  // namespace

TensorSpec cat_shape(TensorSpan tensors, int64_t dim) {
  TG_CHECK(!tensors.empty(), Value, "cat: expected at least one tensor");
  if (auto spec = shape_of_alike(tensors, dim)) return *std::move(spec);
  check_devices(tensors, "cat");
  const Tensor* first = nullptr;
  for (const Tensor& t : tensors) {
    TG_CHECK(t.ndim() > 0, Runtime, "cat: tensors without dimensions cannot be joined\nuse stack");
    if (!first || (is_legacy_empty(*first) && !is_legacy_empty(t))) first = &t;
  }
  // Where nothing counts, neither does dim.
  const int64_t d = is_legacy_empty(*first) ? 0 : wrap_dim(dim, first->ndim(), "cat");
  DimVector sizes(first->sizes());
  sizes[d] = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    if (is_legacy_empty(t) && first->ndim() != 1) continue;
    TG_CHECK(t.ndim() == first->ndim(), Runtime,
             "cat: expected all tensors to have {} dimensions: got sizes {} at position {}", first->ndim(),
             format_ints(t.sizes()), i);
    for (int k = 0; k < t.ndim(); ++k)
      TG_CHECK(k == d || t.impl()->size(k) == sizes[k], Runtime,
               "cat: sizes must agree except in dimension {}: got {} at position {} where {} was expected", d,
               format_ints(t.sizes()), i, format_ints(first->sizes()));
    TG_CHECK(!__builtin_add_overflow(sizes[d], t.impl()->size(static_cast<int>(d)), &sizes[d]), Runtime,
             "cat: the number of elements does not fit into 63 bits");
  }
  DimVector strides = joined_strides(tensors, sizes);
  return {std::move(sizes), common_dtype(tensors), first->device(), std::move(strides)};
}

TensorSpec stack_shape(TensorSpan tensors, int64_t dim) {
  TG_CHECK(!tensors.empty(), Runtime, "stack: expected at least one tensor");
  check_devices(tensors, "stack");
  const IntSpan sizes = tensors[0].sizes();
  for (size_t i = 1; i < tensors.size(); ++i)
    TG_CHECK(tensors[i].sizes() == sizes, Runtime,
             "stack: expected tensors of one shape: got {} at position 0 and {} at position {}", format_ints(sizes),
             format_ints(tensors[i].sizes()), i);
  const int64_t d = wrap_dim(dim, tensors[0].ndim() + 1, "stack");
  DimVector result(sizes);
  result.insert(d, static_cast<int64_t>(tensors.size()));
  DimVector strides;
  if (d < tensors[0].ndim()) {  // laid out as their cat in this dimension, which is then split
    DimVector joined(sizes);
    joined[d] *= static_cast<int64_t>(tensors.size());
    strides = joined_strides(tensors, joined);
    if (!strides.empty()) strides.insert(d, strides[d] * sizes[static_cast<size_t>(d)]);
  }
  return {result, common_dtype(tensors), tensors[0].device(), strides};
}

}  // namespace tapegrad
