// View functions that cut pieces out of dimensions.
#include "tapegrad/aten/kernels_view.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/tensor/checked_int.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad {

namespace {

ViewSpec whole(const Tensor& t) { return {DimVector(t.sizes()), DimVector(t.strides()), t.storage_offset(), {}}; }

// The offset of another element; of a tensor without elements, whose strides may be anything, one that is not used.
int64_t moved(int64_t offset, int64_t index, int64_t stride) {
  const CheckedInt to = CheckedInt(index) * stride + offset;
  return to.fits() ? to.value() : 0;
}

ViewSpec piece(const Tensor& input, int64_t dim, int64_t start, int64_t length) {
  ViewSpec v = whole(input);
  // An empty piece may begin one past the end; its offset stays inside.
  if (length > 0) v.offset = moved(v.offset, start, v.strides[dim]);
  v.sizes[dim] = length;
  return v;
}

int64_t dim_of(const Tensor& input, int64_t dim, const char* op) {
  TG_CHECK(input.ndim() > 0, Runtime, "{}: cannot be applied to a tensor without dimensions", op);
  return wrap_dim(dim, input.ndim(), op);
}

}  // namespace

std::vector<Tensor> alias_views(const Tensor& base, const std::vector<ViewSpec>& views) {
  std::vector<Tensor> tensors;
  tensors.reserve(views.size());
  for (const ViewSpec& view : views) {
    if (tensors.size() % 65536 == 65535) check_interrupt();
    tensors.push_back(alias_tensor(base, view));
  }
  return tensors;
}

ViewSpec narrow_view(const Tensor& input, int64_t dim, int64_t start, int64_t length) {
  dim = dim_of(input, dim, "narrow");
  int64_t size = input.impl()->size(static_cast<int>(dim));
  TG_CHECK(length >= 0, Runtime, "narrow: length must not be negative: got {}", length);
  TG_CHECK(start >= -size && start <= size, Index, "narrow: start {} is out of bounds for dimension {} with size {}",
           start, dim, size);
  if (start < 0) start += size;
  TG_CHECK(start <= size - length, Runtime, "narrow: start {} and length {} exceed dimension {} with size {}", start,
           length, dim, size);
  return piece(input, dim, start, length);
}

ViewSpec select_view(const Tensor& input, int64_t dim, int64_t index) {
  TG_CHECK(input.ndim() > 0, Index, "select: cannot be applied to a tensor without dimensions");
  const TensorImpl& t = *input.impl();
  const int cut = static_cast<int>(wrap_dim(dim, input.ndim(), "select"));
  ViewSpec v;
  v.offset = moved(t.offset(), geometry::wrap_index(index, t.size(cut), cut, "select"), t.stride(cut));
  for (int d = 0; d < t.ndim(); ++d) {
    if (d == cut) continue;
    v.sizes.push_back(t.size(d));
    v.strides.push_back(t.stride(d));
  }
  return v;
}

ViewSpec slice_view(const Tensor& input, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
                    int64_t step) {
  dim = dim_of(input, dim, "slice");
  auto range = geometry::slice_range(input.impl()->size(static_cast<int>(dim)), start, end, step, "slice");
  ViewSpec v = piece(input, dim, range.start, range.length);
  // The product can only overflow where at most one element is left, and then the stride means nothing.
  if (range.length > 1) v.strides[dim] *= step;
  return v;
}

ViewSpec unfold_view(const Tensor& input, int64_t dimension, int64_t size, int64_t step) {
  dimension = wrap_dim(dimension, input.ndim(), "unfold");
  int64_t length = input.ndim() == 0 ? 1 : input.impl()->size(static_cast<int>(dimension));
  TG_CHECK(size >= 0 && size <= length, Runtime, "unfold: the window size {} does not fit dimension {} with size {}",
           size, dimension, length);
  TG_CHECK(step > 0, Runtime, "unfold: step must be greater than zero: got {}", step);
  ViewSpec v = whole(input);
  int64_t stride = input.ndim() == 0 ? 1 : v.strides[dimension];
  v.sizes.push_back(size);
  v.strides.push_back(stride);
  if (input.ndim() == 0) return v;
  v.sizes[dimension] = (length - size) / step + 1;
  if (v.sizes[dimension] > 1) v.strides[dimension] = stride * step;
  return v;
}

std::vector<ViewSpec> split_view(const Tensor& input, int64_t split_size, int64_t dim) {
  dim = dim_of(input, dim, "split");
  TG_CHECK(split_size >= 0, Runtime, "split: the size of the pieces must not be negative: got {}", split_size);
  int64_t size = input.impl()->size(static_cast<int>(dim));
  TG_CHECK(split_size > 0 || size == 0, Runtime, "split: pieces of size 0 cannot cover dimension {} with size {}", dim,
           size);
  std::vector<ViewSpec> pieces;
  if (size > 0) geometry::check_pieces((size - 1) / split_size + 1, "split");
  for (int64_t start = 0; start < size; start += std::min(split_size, size - start)) {
    if (pieces.size() % 65536 == 65535) check_interrupt();
    pieces.push_back(piece(input, dim, start, std::min(split_size, size - start)));
  }
  if (pieces.empty()) pieces.push_back(whole(input));
  return pieces;
}

std::vector<ViewSpec> split_with_sizes_view(const Tensor& input, IntSpan split_sizes, int64_t dim) {
  dim = dim_of(input, dim, "split_with_sizes");
  int64_t size = input.impl()->size(static_cast<int>(dim));
  int64_t left = size;
  for (int64_t s : split_sizes) {
    TG_CHECK(s >= 0, Runtime, "split_with_sizes: sizes must not be negative: got {}", format_ints(split_sizes));
    left = s > left ? -1 : left - s;
    if (left < 0) break;
  }
  TG_CHECK(left == 0, Runtime, "split_with_sizes: sizes {} must sum to {}, the size of dimension {}",
           format_ints(split_sizes), size, dim);
  std::vector<ViewSpec> pieces;
  int64_t start = 0;
  for (int64_t s : split_sizes) {
    pieces.push_back(piece(input, dim, start, s));
    start += s;
  }
  return pieces;
}

std::vector<ViewSpec> unbind_view(const Tensor& input, int64_t dim) {
  TG_CHECK(input.ndim() > 0, Index, "unbind: cannot be applied to a tensor without dimensions");
  dim = wrap_dim(dim, input.ndim(), "unbind");
  int64_t size = input.impl()->size(static_cast<int>(dim));
  geometry::check_pieces(size, "unbind");
  std::vector<ViewSpec> pieces;
  pieces.reserve(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    if (i % 65536 == 65535) check_interrupt();
    pieces.push_back(select_view(input, dim, i));
  }
  return pieces;
}

}  // namespace tapegrad
