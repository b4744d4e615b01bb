#include "tapegrad/aten/view/geometry.h"

#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/c10/memory/allocator.h"
#include "tapegrad/c10/tensor/checked_int.h"

namespace tapegrad::geometry {

DimVector infer_sizes(IntSpan sizes, int64_t numel, const char* op) {
  int64_t product = 1;
  bool plain = true;  // no size to infer, none that is wrong
  for (const int64_t s : sizes) plain &= s >= 0 && !__builtin_mul_overflow(product, s, &product);
  DimVector result(sizes);
  if (TG_LIKELY(plain && product == numel)) return result;
  int64_t unknown = -1;
  int64_t known = 1;
  bool overflow = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == -1) {
      TG_CHECK(unknown < 0, Runtime, "{}: only one size can be inferred: got {}", op, format_ints(sizes));
      unknown = static_cast<int64_t>(d);
      continue;
    }
    TG_CHECK(sizes[d] >= 0, Runtime, "{}: invalid size {}: got {}", op, sizes[d], format_ints(sizes));
    overflow |= __builtin_mul_overflow(known, sizes[d], &known);
  }
  if (unknown >= 0 && !overflow) {
    TG_CHECK(
        known != 0 || numel != 0, Runtime,
        "{}: {} is ambiguous for a tensor without elements, because the unspecified dimension size -1 can be any value",
        op, format_ints(sizes));
    if (known != 0 && numel % known == 0) {
      result[unknown] = numel / known;
      known = numel;
    }
  }
  TG_CHECK(!overflow && known == numel, Runtime, "{}: shape {} is invalid for a tensor with {} elements", op,
           format_ints(sizes), numel);
  TG_CHECK(
      unknown < 0 || result[unknown] >= 0, Runtime,
      "{}: {} is ambiguous for a tensor without elements, because the unspecified dimension size -1 can be any value",
      op, format_ints(sizes));
  return result;
}

// Walks both shapes from the back. A run of old dimensions that lie in memory as one (each stride is the next one's
// stride times its size) can be divided differently as long as the products agree at its front.
std::optional<DimVector> view_strides(IntSpan sizes, IntSpan strides, IntSpan new_sizes) {
  int64_t numel = 1;
  for (int64_t s : sizes) numel *= s;
  if (numel == 0) {
    if (sizes == new_sizes) return DimVector(strides);
    return contiguous_strides(new_sizes);
  }
  DimVector result(new_sizes.size(), 1);
  int64_t next = static_cast<int64_t>(new_sizes.size()) - 1;
  int64_t chunk_stride = sizes.empty() ? 1 : strides.back();
  int64_t old_chunk = 1;
  int64_t new_chunk = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    old_chunk *= sizes[d];
    bool chunk_ends = d == 0 || (sizes[d - 1] != 1 && strides[d - 1] != old_chunk * chunk_stride);
    if (!chunk_ends) continue;
    while (next >= 0 && (new_chunk < old_chunk || new_sizes[next] == 1)) {
      result[next] = new_chunk * chunk_stride;
      new_chunk *= new_sizes[next];
      --next;
    }
    if (new_chunk != old_chunk) return std::nullopt;
    if (d > 0) {
      chunk_stride = strides[d - 1];
      old_chunk = new_chunk = 1;
    }
  }
  for (; next >= 0; --next) {  // 0-d input seen with leading ones
    if (new_sizes[next] != 1) return std::nullopt;
    result[next] = 1;
  }
  return result;
}

SliceRange slice_range(int64_t size, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step,
                       const char* op) {
  TG_CHECK(step > 0, Value, "{}: step must be greater than zero: got {}", op, step);
  int64_t first = start.value_or(0);
  int64_t last = end.value_or(size);
  if (first < 0) first = first < -size ? 0 : first + size;
  if (last < 0) last = last < -size ? 0 : last + size;
  first = std::min(first, size);
  last = std::clamp(last, first, size);
  int64_t length = last > first ? (last - first - 1) / step + 1 : 0;
  return {first, length};
}

int64_t wrap_index(int64_t index, int64_t size, int64_t dim, const char* op) {
  TG_CHECK(index >= -size && index < size, Index, "{}: index {} is out of bounds for dimension {} with size {}", op,
           index, dim, size);
  return index < 0 ? index + size : index;
}

DimVector preserved_strides(const Tensor& t) {
  const TensorImpl& impl = *t.impl();
  if (impl.is_contiguous() || impl.numel() == 0) return contiguous_strides(impl.sizes());
  if (impl.is_non_overlapping_and_dense()) return DimVector(impl.strides());
  // Not dense: keep the order of the dimensions and close the gaps, outermost the largest stride. Dimensions
  // of stride 0 (expanded) carry no order, so they stay where they are among the others.
  int n = impl.ndim();
  int order[kMaxDims];
  for (int d = 0; d < n; ++d) order[d] = d;
  auto outer = [&](int a, int b) {  // whether a certainly lies outside of b
    int64_t sa = impl.stride(a), sb = impl.stride(b);
    if (sa == 0 || sb == 0) return false;
    return sa != sb ? sa > sb : impl.size(a) > impl.size(b) && impl.size(b) == 1;
  };
  for (int i = 1; i < n; ++i)  // insertion sort: the relation is not a strict weak order
    for (int j = i; j > 0 && outer(order[j], order[j - 1]); --j) std::swap(order[j], order[j - 1]);
  DimVector result(static_cast<size_t>(n));
  int64_t stride = 1;
  for (int i = n - 1; i >= 0; --i) {
    result[order[i]] = stride;
    stride *= std::max<int64_t>(impl.size(order[i]), 1);
  }
  return result;
}

DimVector format_strides(IntSpan sizes, MemoryFormat format, const Tensor& like, const char* op) {
  switch (format) {
    case MemoryFormat::Contiguous:
      return contiguous_strides(sizes);
    case MemoryFormat::ChannelsLast:
      TG_CHECK(sizes.size() == 4 || sizes.size() == 5, Runtime,
               "{}: memory format channels_last needs 4 or 5 dimensions: got {}", op, format_ints(sizes));
      return channels_last_strides(sizes);
    case MemoryFormat::Preserve:
      break;
  }
  return like.sizes() == sizes ? preserved_strides(like) : contiguous_strides(sizes);
}

void check_pieces(int64_t count, const char* op) {
  if (count <= 1 << 20) return;
  constexpr int64_t kBytesOfAPiece = 512;  // its geometry, its tensor, and the object of a language binding
  const CheckedInt nbytes = CheckedInt(count) * kBytesOfAPiece;
  TG_CHECK(nbytes.fits(), OutOfMemory, "{}: there is no memory for {} tensors", op, count);
  // The allocator checks the available memory, and names it in its error; it touches none of it.
  cpu_allocator().deallocate(cpu_allocator().allocate(static_cast<size_t>(nbytes.value())),
                             static_cast<size_t>(nbytes.value()));
}

}  // namespace tapegrad::geometry
