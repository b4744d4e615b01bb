#include "tapegrad/aten/iterate/reduce.h"

#include <limits>

#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/record/recorder.h"

namespace tapegrad::reduce {
namespace {

struct Types {
  DType compute;  // elements are converted to this
  DType result;
};

Types types_for(const Op& op, const Tensor& input, std::optional<DType> dtype) {
  DType converted = dtype.value_or(input.dtype());
  if (op.result == Result::SumLike && !dtype && is_wide_unsigned(converted)) converted = DType::int64;
  const DType compute = compute_dtype(converted);
  if (op.result == Result::Float)
    TG_CHECK(is_differentiable(converted), Runtime,
             "{}: needs a floating point or complex tensor: got dtype {}\nconvert it first, or give dtype=", op.name,
             converted);
  TG_CHECK((op.dtypes >> static_cast<int>(compute)) & 1, NotImplemented, "{}: not implemented for dtype {}", op.name,
           converted);
  if (is_wide_unsigned(compute)) return {bits_dtype(compute), op.result == Result::Index ? DType::int64 : DType::bool_};
  switch (op.result) {
    case Result::SumLike:
      return {compute, is_differentiable(converted) || dtype ? converted : DType::int64};
    case Result::Bool:
      return {compute, converted == DType::uint8 ? DType::uint8 : DType::bool_};
    case Result::Index:
      return {compute, DType::int64};
    case Result::Real:
      return {compute, to_real(converted)};
    default:
      return {compute, converted};
  }
}

DimVector result_sizes(const Tensor& input, uint64_t mask, bool keepdim) {
  DimVector sizes;
  for (int d = 0; d < input.ndim(); ++d) {
    if ((mask >> d & 1) == 0)
      sizes.push_back(input.impl()->size(d));
    else if (keepdim)
      sizes.push_back(1);
  }
  return sizes;
}

// Raises for an empty reduction without an identity.
void check_not_empty(const Op& op, const Tensor& input, uint64_t mask, bool dims_given) {
  if (op.empty_allowed || input.numel() > 0) return;
  TG_CHECK(dims_given, Runtime, "{}: a tensor without elements has none: got shape {}\ngive dim= to reduce over others",
           op.name, format_ints(input.sizes()));
  for (int d = 0; d < input.ndim(); ++d)
    if (mask >> d & 1)
      TG_CHECK(input.impl()->size(d) != 0, Index, "{}: Expected reduction dim {} to have non-zero size: got shape {}",
               op.name, d, format_ints(input.sizes()));
}

// Appends a dimension, merged with the last one if their strides allow.
void append(int& ndim, int64_t* shape, int64_t* strides, int64_t size, int64_t stride) {
  if (size == 1) return;
  if (ndim > 0 && strides[ndim - 1] == stride * size) {
    shape[ndim - 1] *= size;
    strides[ndim - 1] = stride;
    return;
  }
  shape[ndim] = size;
  strides[ndim++] = stride;
}

void fill_iterator(Iterator& it, const Tensor& input, uint64_t mask) {
  const TensorImpl& t = *input.impl();
  const auto item = static_cast<int64_t>(t.itemsize());
  // A tensor without elements may have any strides and any other sizes.
  const bool empty = t.numel() == 0;
  auto stride = [&](int d) { return empty ? 0 : t.stride(d) * item; };
  auto multiply = [](int64_t& n, int64_t size) {
    if (__builtin_mul_overflow(n, size, &n)) n = std::numeric_limits<int64_t>::max();
  };
  int reduced[kMaxDims];
  int count = 0;
  for (int d = 0; d < t.ndim(); ++d) {
    if (mask >> d & 1) {
      reduced[count++] = d;
      multiply(it.reduced_numel, t.size(d));
    } else {
      multiply(it.outer_numel, t.size(d));
      append(it.outer_ndim, it.outer_shape, it.outer_strides, t.size(d), stride(d));
    }
  }
  // The order of the reduced ones is free: walk memory forwards.
  for (int i = 1; i < count; ++i)
    for (int k = i; k > 0 && std::abs(t.stride(reduced[k])) > std::abs(t.stride(reduced[k - 1])); --k)
      std::swap(reduced[k], reduced[k - 1]);
  if (empty) append(it.reduced_ndim, it.reduced_shape, it.reduced_strides, it.reduced_numel == 0 ? 0 : 1, item);
  for (int i = 0; !empty && i < count; ++i)
    append(it.reduced_ndim, it.reduced_shape, it.reduced_strides, t.size(reduced[i]), stride(reduced[i]));
  // Kernels find at least one dimension of each kind.
  if (it.outer_ndim == 0) {
    it.outer_shape[0] = 1;
    it.outer_strides[0] = item;
    it.outer_ndim = 1;
  }
  if (it.reduced_ndim == 0) {
    it.reduced_shape[0] = 1;
    it.reduced_strides[0] = item;
    it.reduced_ndim = 1;
  }
}

}  // namespace

Tensor run(const Op& op, const Tensor& input, OptionalInts dim, bool keepdim, std::optional<DType> dtype,
           std::span<const Scalar> params, const Tensor& out) {
  // No dimensions stand for all of them, but for any() and all(), as in PyTorch.
  const bool none = op.result == Result::Bool && dim && dim->empty();
  const uint64_t mask = none ? 0 : dim_mask(dim, input.ndim(), op.name);
  Types types = types_for(op, input, dtype);
  // Sums, products and means are taken in the dtype of the tensor that they are written to, as PyTorch does.
  if (out.defined() && !dtype && (op.result == Result::SumLike || op.result == Result::Float) &&
      can_cast(types.result, out.dtype()))
    types = types_for(op, input, out.dtype());
  check_not_empty(op, input, mask, dim && !dim->empty());
  if (out.defined()) {
    const bool truth = out.dtype() == DType::bool_ || out.dtype() == DType::uint8;
    TG_CHECK(op.result != Result::Bool || truth, Runtime, "{0}: {0} only supports bool tensor for result, got: {1}",
             op.name, out.dtype());
    TG_CHECK(!dtype || *dtype == out.dtype(), Runtime, "{}: Expected out tensor to have dtype {}, but got {} instead",
             op.name, *dtype, out.dtype());
  }
  const TensorSpec spec{result_sizes(input, mask, keepdim), types.result, input.device(), {}};
  const Tensor target = out.defined() ? out_target(op.name, out, spec, {&input}) : empty_tensor(spec);
  if (!input.is_meta() && target.numel() > 0) {
    Iterator it;
    it.compute = types.compute;
    it.input_dtype = bits_dtype(input.dtype()) == it.compute ? it.compute : input.dtype();
    it.output_dtype = types.result;
    it.device = input.device();
    it.input = static_cast<const char*>(input.data_ptr());
    it.output = static_cast<char*>(target.data_ptr());
    for (size_t i = 0; i < params.size(); ++i) it.params[i] = params[i];
    fill_iterator(it, input, mask);
    const auto kernel = kernel_for<Kernel>(*op.entry, input.device());
    if (TG_UNLIKELY(record::active()))
      record::reduce_call(*op.entry, kernel, it, target, input);
    else
      kernel(it);
  }
  if (out.defined()) finish_out(out, target);
  return out.defined() ? out : target;
}

}  // namespace tapegrad::reduce
