// What operators write to: the targets of `out=` and of in-place forms, and whether they share memory with operands.
// Kernels of their own only get fresh or exactly matching outputs; for any other target, the result is copied to it at
// the end. Pointwise rows (pointwise.h) write to any strides. All checks come before the first write. Nothing here is
// recorded on the tape; any thread; no cost depends on the number of elements unless something is copied.
#pragma once

#include <array>
#include <initializer_list>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/random/generator.h"

namespace tapegrad {

// Raises Runtime unless all defined tensors are on one device; zero-dimensional CPU tensors go with any.
TG_API void check_same_device(const char* op, std::initializer_list<const Tensor*> tensors, TensorSpan list = {});

// A contiguous tensor of the same elements: a copy, or `t` itself where it is contiguous.
TG_API Tensor contiguous_copy(const Tensor& t);
TG_API Tensor contiguous_or_copy(const Tensor& t);

// Whether the two may share a byte, judged by the extent of their views: true for interleaved ones that do not.
TG_API bool may_overlap(const Tensor& a, const Tensor& b);
// Whether both are the same elements of the same memory in the same order, so that an operator may write to one while
// it reads the other, element by element.
TG_API bool same_elements(const Tensor& a, const Tensor& b);

// The tensor that a kernel writes to for `out=`: `out` itself if it matches the spec exactly and shares no memory with
// an input, else a new tensor. Warns for an `out` of other sizes that is not empty-sized; checks the cast.
TG_API Tensor out_target(const char* op, const Tensor& out, const TensorSpec& spec,
                         std::initializer_list<const Tensor*> inputs, TensorSpan more = {});
// Copies the result to `out` if it was computed in another tensor; resizes an `out` of other sizes.
TG_API void finish_out(const Tensor& out, const Tensor& target);
// out_target and finish_out for a result that exists already.
TG_API void write_out(const char* op, const Tensor& out, const Tensor& result);

// Raises unless a result of this kind can be written over self: same sizes, castable dtype.
TG_API void check_inplace_result(const char* op, const Tensor& self, const TensorSpec& spec);

// Gives `out` the sizes, contiguous: in new memory when they differ, so that other views of the old one keep their
// values.
TG_API void resize_output(const Tensor& out, IntSpan sizes);

// --- targets that are written element by element, with any strides ---

[[noreturn]] TG_API TG_COLD void throw_cannot_cast(const char* op, DType from, DType to);
// Raises Runtime unless a result of these sizes and dtype may be written to `out`: dtype by can_cast, sizes equal
// (or `resize_out`), no element reached twice, memory writable.
TG_API void check_target(const char* op, const Tensor& out, IntSpan sizes, DType dtype, bool resize_out);
// Whether the source must be read from a copy: false if the two share no memory or are the same elements, Runtime if
// dense ones overlap partly, true if they are interleaved in a way that is too expensive to decide.
TG_API bool must_copy_source(const char* op, const Tensor& out, const Tensor& source);

// The spec of `size, dtype=None, device=None` with defaults filled in.
TG_API TensorSpec create_spec(IntSpan size, std::optional<DType> dtype, std::optional<Device> device, const char* op);

}  // namespace tapegrad
