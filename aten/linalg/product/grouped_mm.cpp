// Products of groups of rows, columns or terms, one product of matrices after the other, on any device.
#include <span>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_linalg.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {

TensorSpec grouped_mm_shape(const Tensor& input, const Tensor& mat2, const Tensor& offs, const Tensor& bias,
                            std::optional<DType> out_dtype) {
  const auto sizes = [](const Tensor& t) { return format_ints(t.sizes()); };
  for (const Tensor* t : {&input, &mat2})
    TG_CHECK(t->ndim() == 2 || t->ndim() == 3, Runtime,
             "_grouped_mm: expected operands with two or three dimensions: got shapes {} and {}", sizes(input),
             sizes(mat2));
  const bool a_flat = input.ndim() == 2, b_flat = mat2.ndim() == 2;
  TG_CHECK(is_floating_point(input.dtype()) && input.dtype() == mat2.dtype(), Runtime,
           "_grouped_mm: expected operands of one floating dtype: got {} and {}", input.dtype(), mat2.dtype());
  TG_CHECK(!bias.defined(), Runtime, "_grouped_mm: bias is not supported");
  TG_CHECK(offs.defined() == (a_flat || b_flat), Runtime,
           "_grouped_mm: offs goes with an operand of two dimensions, which needs it: got {} for shapes {} and {}",
           offs.defined() ? "offs" : "none", sizes(input), sizes(mat2));
  if (offs.defined())
    TG_CHECK(offs.ndim() == 1 && offs.dtype() == DType::int32, Runtime,
             "_grouped_mm: offs must be a vector of int32: got {} of shape {}", offs.dtype(), sizes(offs));
  TG_CHECK(input.size(-1) == mat2.size(-2), Runtime,
           "_grouped_mm: shapes {} and {} cannot be multiplied: inner sizes are {} and {}", sizes(input), sizes(mat2),
           input.size(-1), mat2.size(-2));
  const int64_t groups = a_flat ? (b_flat ? offs.size(0) : mat2.size(0)) : input.size(0);
  const int64_t given = a_flat || b_flat ? offs.size(0) : mat2.size(0);
  TG_CHECK(groups == given, Runtime, "_grouped_mm: expected {} groups: got {} for shapes {} and {}", groups, given,
           sizes(input), sizes(mat2));
  const DType to = out_dtype.value_or(input.dtype());
  TG_CHECK(is_floating_point(to), Runtime, "_grouped_mm: out_dtype must be a floating dtype: got {}", to);
  DimVector shape{input.size(-2), mat2.size(-1)};
  if (a_flat == b_flat) shape = {groups, input.size(-2), mat2.size(-1)};
  return {std::move(shape), to, input.device(), {}};
}

namespace cpu {

void grouped_mm_cpu(const Tensor& input, const Tensor& mat2, const Tensor& offs, const Tensor&, std::optional<DType>,
                    const Tensor& out) {
  if (!offs.defined()) {
    if (out.dtype() == input.dtype())
      raw::bmm_out(input, mat2, out);
    else
      raw::copy_(out, raw::bmm(input, mat2));
    return;
  }
  const bool a_flat = input.ndim() == 2, b_flat = mat2.ndim() == 2;
  const int64_t whole = !a_flat ? mat2.size(1) : input.size(b_flat ? 1 : 0);
  const Tensor host = raw::contiguous(raw::to(offs, std::nullopt, Device()));
  const std::span ends(host.data<int32_t>(), static_cast<size_t>(host.numel()));
  int64_t last = 0;
  for (const int64_t end : ends) {
    TG_CHECK(last <= end && end <= whole, Value,
             "_grouped_mm: expected ascending ends up to {} in offs: got {} behind {}", whole, end, last);
    last = end;
  }
  int64_t start = 0;
  for (int64_t g = 0; g < host.numel(); ++g) {
    const int64_t size = ends[static_cast<size_t>(g)] - start;
    // Part g of what is cut along a dimension, or matrix g of several.
    const auto part = [&](const Tensor& t, bool flat, int64_t dim) {
      return flat ? raw::narrow(t, dim, start, size) : raw::select(t, 0, g);
    };
    const Tensor a = part(input, a_flat, b_flat ? 1 : 0), b = part(mat2, b_flat, a_flat ? 0 : 1),
                 to = part(out, a_flat != b_flat, a_flat ? 0 : 1);
    if (out.dtype() == input.dtype())
      raw::mm_out(a, b, to);
    else
      raw::copy_(to, raw::mm(a, b));
    start += size;
  }
  if (a_flat != b_flat) raw::zero_(raw::narrow(out, a_flat ? 0 : 1, start, whole - start));
}

}  // namespace cpu
}  // namespace tapegrad
