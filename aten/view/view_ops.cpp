// View operators composed of others.
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_view.h"
#include "tapegrad/aten/view/geometry.h"

namespace tapegrad::composite {

Tensor reshape(const Tensor& input, IntSpan shape) {
  DimVector sizes = geometry::infer_sizes(shape, input.numel(), "reshape");
  if (input.is_contiguous() || geometry::view_strides(input.sizes(), input.strides(), sizes)) return view(input, sizes);
  return view(clone(input, MemoryFormat::Contiguous), sizes);
}

Tensor flatten(const Tensor& input, int64_t start_dim, int64_t end_dim) {
  int64_t first = wrap_dim(start_dim, input.ndim(), "flatten"), last = wrap_dim(end_dim, input.ndim(), "flatten");
  TG_CHECK(first <= last, Runtime, "flatten: start_dim must not come after end_dim: got {} and {}", start_dim, end_dim);
  if (input.ndim() == 0) return tapegrad::reshape(input, {1});
  if (first == last) return input;
  DimVector sizes;
  int64_t joined = 1;
  for (int64_t d = 0; d < input.ndim(); ++d) {
    int64_t size = input.size(d);
    if (d < first || d > last) sizes.push_back(size);
    if (d >= first && d <= last) joined *= size;
    if (d == last) sizes.push_back(joined);
  }
  return tapegrad::reshape(input, sizes);
}

Tensor unflatten(const Tensor& input, int64_t dim, IntSpan sizes) {
  TG_CHECK(!sizes.empty(), Runtime, "unflatten: sizes must not be empty");
  int64_t d = wrap_dim(dim, input.ndim(), "unflatten");
  int64_t size = input.ndim() == 0 ? 1 : input.size(d);
  DimVector pieces = geometry::infer_sizes(sizes, size, "unflatten");
  DimVector shape;
  for (int64_t i = 0; i < std::max<int64_t>(input.ndim(), 1); ++i) {
    if (i != d) shape.push_back(input.size(i));
    if (i == d)
      for (int64_t s : pieces) shape.push_back(s);
  }
  return view(input, shape);
}

Tensor sum_to_size(const Tensor& input, IntSpan size) {
  int64_t lead = input.ndim() - static_cast<int64_t>(size.size());
  TG_CHECK(lead >= 0, Runtime, "sum_to_size: size {} does not expand to {}", format_ints(size),
           format_ints(input.sizes()));
  DimVector dims;
  for (int64_t d = 0; d < input.ndim(); ++d) {
    if (d < lead) {
      dims.push_back(d);
      continue;
    }
    TG_CHECK(size[d - lead] == 1 || size[d - lead] == input.size(d), Runtime,
             "sum_to_size: size {} does not expand to {}", format_ints(size), format_ints(input.sizes()));
    if (size[d - lead] == 1 && input.size(d) != 1) dims.push_back(d);
  }
  if (size.empty()) return sum(input);  // never the input itself, as PyTorch
  return dims.empty() ? input : tapegrad::reshape(sum(input, IntSpan(dims), true), size);
}

Tensor rot90(const Tensor& input, int64_t k, IntSpan dims) {
  TG_CHECK(dims.size() == 2, Runtime, "rot90: expected two dimensions: got {}", format_ints(dims));
  TG_CHECK(input.ndim() >= 2, Runtime, "rot90: expected at least 2 dimensions: got {}", format_ints(input.sizes()));
  int64_t a = wrap_dim(dims[0], input.ndim(), "rot90"), b = wrap_dim(dims[1], input.ndim(), "rot90");
  TG_CHECK(a != b, Runtime, "rot90: the two dimensions must differ: got {}", format_ints(dims));
  switch (((k % 4) + 4) % 4) {
    case 1:
      return tapegrad::transpose(flip(input, {b}), a, b);
    case 2:
      return flip(input, {a, b});
    case 3:
      return tapegrad::transpose(flip(input, {a}), a, b);
    default:
      return clone(input, MemoryFormat::Contiguous);
  }
}

Tensor tile(const Tensor& input, IntSpan dims) {
  DimVector repeats;
  for (int64_t lead = input.ndim() - static_cast<int64_t>(dims.size()); lead > 0; --lead) repeats.push_back(1);
  for (int64_t d : dims) repeats.push_back(d);
  return repeat(input, repeats);
}

Tensor repeat_interleave_int(const Tensor& input, int64_t repeats, std::optional<int64_t> dim,
                             std::optional<int64_t> output_size) {
  TG_CHECK(repeats >= 0, Runtime, "repeat_interleave: repeats must not be negative: got {}", repeats);
  TG_CHECK(!dim || input.ndim() > 0, Index, "repeat_interleave: dim {} of a tensor without dimensions", *dim);
  Tensor x = dim ? input : tapegrad::flatten(input);
  int64_t d = wrap_dim(dim.value_or(0), x.ndim(), "repeat_interleave");
  DimVector sizes(x.sizes());
  sizes.insert(d + 1, repeats);
  checked_numel(sizes, "repeat_interleave");
  TG_CHECK(!output_size || *output_size == x.size(d) * repeats, Runtime,
           "repeat_interleave: output_size is {}, the repeats give {}", *output_size, x.size(d) * repeats);
  return tapegrad::flatten(clone(expand(unsqueeze(x, d + 1), sizes), MemoryFormat::Contiguous), d, d + 1);
}

Tensor repeat_interleave_tensor(const Tensor& input, const Tensor& repeats, std::optional<int64_t> dim,
                                std::optional<int64_t> output_size) {
  TG_CHECK(!dim || input.ndim() > 0, Index, "repeat_interleave: dim {} of a tensor without dimensions", *dim);
  Tensor x = dim ? input : tapegrad::flatten(input);
  int64_t d = wrap_dim(dim.value_or(0), x.ndim(), "repeat_interleave");
  TG_CHECK(repeats.ndim() <= 1, Runtime, "repeat_interleave: expected repeats with at most 1 dimension: got {}",
           format_ints(repeats.sizes()));
  Tensor counts = repeats;
  if (repeats.numel() == 1) counts = expand(tapegrad::reshape(repeats, {1}), {x.size(d)});
  TG_CHECK(counts.numel() == x.size(d), Runtime, "repeat_interleave: {} repeats for dimension {} with size {}",
           counts.numel(), d, x.size(d));
  return index_select(x, d, _repeat_indices(counts, output_size));
}

Tensor atleast_2d(const Tensor& input) {
  if (input.ndim() >= 2) return input;
  return input.ndim() == 1 ? unsqueeze(input, 0) : tapegrad::reshape(input, {1, 1});
}

Tensor atleast_3d(const Tensor& input) {
  switch (input.ndim()) {
    case 0:
      return tapegrad::reshape(input, {1, 1, 1});
    case 1:
      return unsqueeze(unsqueeze(input, 0), -1);
    case 2:
      return unsqueeze(input, -1);
    default:
      return input;
  }
}

}  // namespace tapegrad::composite
