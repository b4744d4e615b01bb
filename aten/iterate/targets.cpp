#include "tapegrad/aten/iterate/targets.h"

#include "tapegrad/aten/functions_pointwise.h"

namespace tapegrad {
namespace {

// The byte range from the first element to the end of the last one.
std::pair<const char*, const char*> extent(const TensorImpl& t) {
  const char* low = static_cast<const char*>(t.data());
  const char* high = low + t.itemsize();
  for (int d = 0; d < t.ndim(); ++d) {
    const int64_t span = (t.size(d) - 1) * t.stride(d) * static_cast<int64_t>(t.itemsize());
    (span < 0 ? low : high) += span;
  }
  return {low, high};
}

}  // namespace

void throw_cannot_cast(const char* op, DType from, DType to) {
  TG_THROW(Runtime, "{}: a result of dtype {} cannot be written to a tensor of dtype {}", op, from, to);
}

void check_target(const char* op, const Tensor& out, IntSpan sizes, DType dtype, bool resize_out) {
  if (!can_cast(dtype, out.dtype())) throw_cannot_cast(op, dtype, out.dtype());
  TG_CHECK(!out.impl()->storage()->read_only(), Runtime, "{}: the tensor to write to is read-only", op);
  if (!(out.sizes() == sizes)) {
    TG_CHECK(resize_out, Runtime, "{}: a result of shape {} does not fit the tensor of shape {} that it is written to",
             op, format_ints(sizes), format_ints(out.sizes()));
    TG_CHECK(out.impl()->storage()->resizable(), Runtime,
             "{}: out= has shape {} and cannot be resized to {}: its memory belongs to somebody else", op,
             format_ints(out.sizes()), format_ints(sizes));
    return;
  }
  TG_CHECK(!has_internal_overlap(out), Runtime,
           "{}: several elements of the tensor to write to share one place in memory: sizes {}, strides {}\n"
           "write to a clone() of it",
           op, format_ints(out.sizes()), format_ints(out.strides()));
}

void prepare_target(const Tensor& out, IntSpan sizes, bool resize_out) {
  if (!resize_out || out.sizes() == sizes) return;
  TensorImpl& t = *out.impl();
  const auto nbytes = static_cast<size_t>(checked_nbytes(sizes, t.dtype(), "out"));
  t.set_storage(allocate_storage(nbytes, t.device()), t.dtype());
  t.set_geometry(sizes, contiguous_strides(sizes), 0);
}

bool must_copy_source(const char* op, const Tensor& out, const Tensor& source) {
  const TensorImpl& a = *out.impl();
  const TensorImpl& b = *source.impl();
  if (&a == &b || a.storage() != b.storage() || a.numel() == 0 || b.numel() == 0 || a.data() == nullptr) return false;
  const bool same_geometry =
      a.data() == b.data() && a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.strides() == b.strides();
  if (same_geometry) return false;
  const auto [a_low, a_high] = extent(a);
  const auto [b_low, b_high] = extent(b);
  if (a_high <= b_low || b_high <= a_low) return false;
  TG_CHECK(!(a.is_non_overlapping_and_dense() && b.is_non_overlapping_and_dense()), Runtime,
           "{}: the tensor to write to overlaps an operand partly: shapes {} and {}\n"
           "take a clone() of one of them first",
           op, format_ints(out.sizes()), format_ints(source.sizes()));
  return true;
}

Tensor dense_copy(const Tensor& t) {
  const Tensor copy = empty_tensor(t.sizes(), t.dtype(), t.device());
  raw::_identity_out(t, copy);
  return copy;
}

}  // namespace tapegrad
