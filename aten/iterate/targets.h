// Rules for tensors that an operator writes to: the targets of out= and of in-place forms. All checks come
// before the first write.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

[[noreturn]] TG_API TG_COLD void throw_cannot_cast(const char* op, DType from, DType to);

// Raises Runtime unless a result of these sizes and dtype may be written to `out`: dtype by can_cast, sizes equal
// (or `resize_out`), no element reached twice, memory writable.
TG_API void check_target(const char* op, const Tensor& out, IntSpan sizes, DType dtype, bool resize_out);
// Gives `out` the sizes (new memory when they differ). After all checks.
TG_API void prepare_target(const Tensor& out, IntSpan sizes, bool resize_out);

// Overlap of source and target: false if they share no memory or exactly the same elements, Runtime if they overlap
// partly, true if they are interleaved in a way that is too expensive to decide (then read from a copy).
TG_API bool must_copy_source(const char* op, const Tensor& out, const Tensor& source);
// A contiguous copy on the same device; no tape.
TG_API Tensor dense_copy(const Tensor& t);

}  // namespace tapegrad
