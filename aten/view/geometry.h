// Arithmetic on sizes and strides that views share. Nothing here touches data or the tape; every product and
// sum that a caller's numbers reach is checked against overflow. Pure functions, safe on any thread.
#pragma once

#include <optional>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::geometry {

// The sizes with one -1 replaced by what `numel` leaves. Raises Runtime when that does not work out.
TG_API DimVector infer_sizes(IntSpan sizes, int64_t numel, const char* op);

// Strides under which a tensor of `sizes` and `strides` can be seen as `new_sizes` (of equal numel), or nothing.
TG_API std::optional<DimVector> view_strides(IntSpan sizes, IntSpan strides, IntSpan new_sizes);

// Start and end of a slice, Python's way: negative ones count from the end, both are clamped to [0, size].
struct SliceRange {
  int64_t start;
  int64_t length;  // number of elements, at least 0
};
TG_API SliceRange slice_range(int64_t size, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step,
                              const char* op);

// An index in [0, size), negative ones counted from the end; raises Index.
TG_API int64_t wrap_index(int64_t index, int64_t size, int64_t dim, const char* op);

// Raises OutOfMemory if there is not enough memory for that many views of one tensor, before the first one is created.
TG_API void check_pieces(int64_t count, const char* op);

// The dense strides that keep the order of dimensions of `t` (memory_format=preserve), else contiguous ones.
TG_API DimVector preserved_strides(const Tensor& t);
// Strides for a dense result of `sizes` in the given format; `like` decides for Preserve.
TG_API DimVector format_strides(IntSpan sizes, MemoryFormat format, const Tensor& like, const char* op);

}  // namespace tapegrad::geometry
