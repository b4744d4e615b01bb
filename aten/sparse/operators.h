// Implementations of operators for sparse tensors, called by rows with `sparse = true`.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {
struct Subscript;

inline bool is_sparse(const Tensor& t) noexcept { return t.defined() && t.is_sparse(); }
inline bool is_sparse(const Operand& t) noexcept { return is_sparse(t.tensor()); }

namespace sparse {

TG_COLD Tensor add(const Tensor& input, const Operand& other, const Scalar& alpha);
TG_COLD Tensor sub(const Tensor& input, const Operand& other, const Scalar& alpha);
TG_COLD Tensor mul(const Tensor& input, const Operand& other);
TG_COLD Tensor div(const Tensor& input, const Operand& other, std::optional<std::string_view> rounding_mode);
TG_COLD Tensor neg(const Tensor& input);
// A dense tensor takes a sparse one in where that has entries; a sparse one takes numbers, which go to its values.
TG_COLD const Tensor& add_(const Tensor& self, const Operand& other, const Scalar& alpha);
TG_COLD const Tensor& sub_(const Tensor& self, const Operand& other, const Scalar& alpha);
TG_COLD const Tensor& mul_(const Tensor& self, const Operand& other);
TG_COLD const Tensor& div_(const Tensor& self, const Operand& other, std::optional<std::string_view> rounding_mode);
TG_COLD const Tensor& neg_(const Tensor& self);
TG_COLD const Tensor& zero_(const Tensor& self);
TG_COLD Tensor mm(const Tensor& input, const Tensor& mat2);
TG_COLD Tensor clone(const Tensor& input, std::optional<MemoryFormat> memory_format);
TG_COLD Tensor to(const Tensor& input, std::optional<DType> dtype, std::optional<Device> device, bool non_blocking,
                  bool copy, std::optional<MemoryFormat> memory_format);
TG_COLD Tensor sum(const Tensor& input, OptionalInts dim, bool keepdim, std::optional<DType> dtype);
TG_COLD Tensor transpose(const Tensor& input, int64_t dim0, int64_t dim1);
TG_COLD Tensor t(const Tensor& input);
// Entries in the order of the indices, those of an index that is named twice twice; one place of a dimension.
TG_COLD Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index, bool sparse_grad);
TG_COLD Tensor select(const Tensor& input, int64_t dim, int64_t index);
// input[subscripts], of integers, whole slices and `...`; raises NotImplemented for others.
TG_COLD Tensor subscript(const Tensor& input, std::span<const Subscript> subscripts);

}  // namespace sparse
}  // namespace tapegrad
