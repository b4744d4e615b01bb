#include "tapegrad/autograd/formulas/rearrange/view.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_solve.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_view.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/autograd/engine/node.h"

namespace tapegrad {

namespace {

// A tensor of the sizes without memory, on which view functions compute places.
Tensor shadow(IntSpan sizes) { return empty_tensor(sizes, DType::uint8, Device(DeviceType::Meta)); }

Tensor embed(const Tensor& grad, IntSpan sizes, const ViewSpec& view) {
  return _embed_view(grad, sizes, view.sizes, view.strides, view.offset);
}

}  // namespace

Tensor slice_grad(const Tensor& grad, IntSpan sizes, int64_t dim, std::optional<int64_t> start,
                  std::optional<int64_t> end, int64_t step) {
  return embed(grad, sizes, slice_view(shadow(sizes), dim, start, end, step));
}

Tensor narrow_grad(const Tensor& grad, IntSpan sizes, int64_t dim, int64_t start, int64_t length) {
  return embed(grad, sizes, narrow_view(shadow(sizes), dim, start, length));
}

Tensor select_grad(const Tensor& grad, IntSpan sizes, int64_t dim, int64_t index) {
  return embed(grad, sizes, select_view(shadow(sizes), dim, index));
}

Tensor diagonal_grad(const Tensor& grad, IntSpan sizes, int64_t offset, int64_t dim1, int64_t dim2) {
  return embed(grad, sizes, diagonal_view(shadow(sizes), offset, dim1, dim2));
}

Tensor permute_grad(const Tensor& grad, IntSpan dims) {
  DimVector inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i)
    inverse[wrap_dim(dims[i], static_cast<int64_t>(dims.size()), "permute")] = static_cast<int64_t>(i);
  return permute(grad, inverse);
}

// Elements of the storage that both sides see may be reached several times from either side. Sum up what arrives
// at each place of the storage, then read it through the input's geometry; where several elements of the input
// are one place, each gets an equal share.
Tensor as_strided_grad(const Tensor& grad, IntSpan sizes, IntSpan strides, int64_t input_offset, IntSpan size,
                       IntSpan stride, std::optional<int64_t> storage_offset) {
  int64_t offset = storage_offset.value_or(input_offset);
  auto last = [](IntSpan n, IntSpan s, int64_t start) {
    for (size_t d = 0; d < n.size(); ++d) {
      if (n[d] == 0) return start;
      start += (n[d] - 1) * s[d];
    }
    return start + 1;
  };
  int64_t first = std::min(offset, input_offset);
  int64_t length = std::max(last(size, stride, offset), last(sizes, strides, input_offset)) - first;
  Tensor places = raw::_arange(0, Scalar(length), 1, DType::int64, grad.device());
  Tensor target = raw::reshape(raw::as_strided(places, size, stride, offset - first), {-1});
  const DType wide =
      is_half(grad.dtype()) ? DType::float32 : grad.dtype();  // of 16 bits long sums would come to a stop
  Tensor sum = index_add(zeros({length}, wide, grad.device()), 0, target, to(reshape(grad, {target.numel()}), wide));
  Tensor seen = alias_tensor(places, sizes, strides, input_offset - first);
  if (has_internal_overlap(seen)) {
    Tensor from = raw::reshape(raw::contiguous(seen), {-1});
    Tensor count = raw::zeros({length}, wide, grad.device());
    Tensor ones = raw::ones({from.numel()}, wide, grad.device());
    sum = div(sum, raw::clamp_min(raw::index_add(count, 0, from, ones), 1));
  }
  return as_strided(to(sum, grad.dtype()), sizes, strides, input_offset - first);
}

// The result is [r0, s0, r1, s1, ...] seen flat; sum over the r's.
Tensor repeat_grad(const Tensor& grad, IntSpan repeats, IntSpan sizes) {
  size_t lead = repeats.size() - sizes.size();
  DimVector shape, reduced;
  for (size_t d = 0; d < repeats.size(); ++d) {
    if (repeats[d] == 0) return zeros(sizes, grad.dtype(), grad.device());
    if (repeats[d] != 1 || d < lead) {
      reduced.push_back(static_cast<int64_t>(shape.size()));
      shape.push_back(repeats[d]);
    }
    if (d >= lead) shape.push_back(sizes[d - lead]);
  }
  Tensor g = reshape(grad, shape);
  return reduced.empty() ? g : sum(g, reduced);
}

Tensor roll_grad(const Tensor& grad, IntSpan shifts, IntSpan dims) {
  DimVector back;
  for (int64_t s : shifts) back.push_back(static_cast<int64_t>(0 - static_cast<uint64_t>(s)));
  return roll(grad, back, dims);
}

Tensor sum_to_sizes(const Tensor& grad, IntSpan sizes) {
  return autograd::reduce_to(grad, {DimVector(sizes), grad.dtype(), grad.device()});
}

}  // namespace tapegrad
