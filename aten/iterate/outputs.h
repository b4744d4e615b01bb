// Shared code of the generated raw:: functions: checks between arguments, and targets of `out=` and in-place forms.
// Kernels only get fresh or exactly matching outputs; for any other target, the result is copied to it at the end.
#pragma once

#include <array>
#include <initializer_list>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/generator.h"

namespace tapegrad {

// Raises Runtime unless all defined tensors are on one device; zero-dimensional CPU tensors go with any.
TG_API void check_same_device(const char* op, std::initializer_list<const Tensor*> tensors, TensorSpan list = {});

TG_API Tensor contiguous_or_copy(const Tensor& t);

// The tensor that a kernel writes to for `out=`: `out` itself if it matches the spec exactly and shares no memory with
// an input, else a new tensor. Raises for an `out` of other sizes that is not empty-sized; checks the cast.
TG_API Tensor out_target(const char* op, const Tensor& out, const TensorSpec& spec,
                         std::initializer_list<const Tensor*> inputs, TensorSpan more = {});
// Copies the result to `out` if it was computed in another tensor; resizes an empty-sized `out`.
TG_API void finish_out(const Tensor& out, const Tensor& target);
// out_target and finish_out for a result that exists already.
TG_API void write_out(const char* op, const Tensor& out, const Tensor& result);

// Raises unless a result of this kind can be written over self: same sizes, castable dtype.
TG_API void check_inplace_result(const char* op, const Tensor& self, const TensorSpec& spec);

// Geometry for `out=`: gives a tensor new sizes, contiguous, with a larger storage when needed.
TG_API void resize_output(const Tensor& out, IntSpan sizes, const char* op);

// Whether the two may share a byte, judged by the extent of their views.
TG_API bool may_overlap(const Tensor& a, const Tensor& b);

// The spec of `size, dtype=None, device=None` with defaults filled in.
TG_API TensorSpec create_spec(IntSpan size, std::optional<DType> dtype, std::optional<Device> device, const char* op);

}  // namespace tapegrad
