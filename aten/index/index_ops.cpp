// Index operators composed of others.
#include <functional>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/index/index_plan.h"
#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/tensor/checked_int.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::composite {

namespace {

bool is_mask(const Tensor& t) { return t.defined() && (t.dtype() == DType::bool_ || t.dtype() == DType::uint8); }

// The position of the only index, where it is a mask with dimensions; else -1.
int only_mask(TensorSpan indices) {
  int at = -1;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i].defined()) continue;
    if (at >= 0 || !is_mask(indices[i]) || indices[i].ndim() == 0) return -1;
    at = static_cast<int>(i);
  }
  return at;
}

// A mask over several dimensions is one over their joined dimension, where a view can join them.
struct JoinedMask {
  Tensor input;
  std::vector<Tensor> indices;
};
std::optional<JoinedMask> join_mask(const Tensor& input, TensorSpan indices, int at) {
  const Tensor& mask = indices[static_cast<size_t>(at)];
  if (mask.ndim() < 2 || at + mask.ndim() > input.ndim()) return std::nullopt;
  DimVector sizes;
  int64_t joined = 1;
  for (int d = 0; d < input.ndim(); ++d) {
    const int k = d - at;
    if (k >= 0 && k < mask.ndim()) {
      if (mask.size(k) != input.size(d)) return std::nullopt;  // the ordinary way raises
      joined *= input.size(d);
      if (k == mask.ndim() - 1) sizes.push_back(joined);
    } else {
      sizes.push_back(input.size(d));
    }
  }
  if (!geometry::view_strides(input.sizes(), input.strides(), sizes)) return std::nullopt;
  JoinedMask result{view(input, sizes), {indices.begin(), indices.end()}};
  result.indices[static_cast<size_t>(at)] = raw::reshape(mask, {-1});
  return result;
}

// Whether dimensions of the tensor are expanded.
bool is_expanded(const Tensor& t) {
  for (int d = 0; d < t.ndim(); ++d)
    if (t.impl()->size(d) > 1 && t.impl()->stride(d) == 0) return true;
  return false;
}

// Writes to an expanded tensor go to the memory that its elements share, in order.
void put_expanded(const Tensor& self, TensorSpan indices, const Tensor& values, bool accumulate) {
  warn(
      "Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
      "operation. This also applies to advanced indexing e.g. tensor[indices] = tensor");
  Tensor memory = self;
  for (int64_t d = 0; d < self.ndim(); ++d)
    if (self.size(d) > 1 && self.stride(d) == 0) memory = narrow(memory, d, 0, 1);
  const Tensor numbers = reshape(arange(memory.numel(), DType::int64, self.device()), memory.sizes());
  const Tensor places = _index_tensor(expand(numbers, self.sizes()), expand_masks(self, indices, "index_put"));
  put_(memory, places, expand(values, places.sizes()), accumulate);
}

}  // namespace

Tensor index(const Tensor& input, TensorSpan indices) {
  const int at = only_mask(indices);
  if (at >= 0)
    if (auto joined = join_mask(input, indices, at))
      return _index_tensor(joined->input, expand_masks(joined->input, joined->indices, "index"));
  return _index_tensor(input, expand_masks(input, indices, "index"));
}

Tensor index_put(const Tensor& input, TensorSpan indices, const Tensor& values, bool accumulate) {
  return _index_put(input, expand_masks(input, indices, "index_put"), values, accumulate);
}

const Tensor& index_put_(const Tensor& self, TensorSpan indices, const Tensor& values, bool accumulate) {
  if (TG_UNLIKELY(!self.is_sparse() && is_expanded(self))) return put_expanded(self, indices, values, accumulate), self;
  const int at = only_mask(indices);
  if (at >= 0) {
    const Tensor& mask = indices[static_cast<size_t>(at)];
    bool fits = at + mask.ndim() <= self.ndim() && mask.dtype() == DType::bool_ && mask.device() == self.device();
    for (int k = 0; fits && k < mask.ndim(); ++k) fits = mask.size(k) == self.size(at + k);
    if (fits && values.ndim() == 0 && !accumulate && values.dtype() == self.dtype()) {
      // One value for all: no list of places is needed.
      DimVector sizes(mask.sizes());
      for (int d = at + mask.ndim(); d < self.ndim(); ++d) sizes.push_back(1);
      masked_fill_(self, raw::reshape(mask, sizes), values);
      return self;
    }
    if (auto joined = join_mask(self, indices, at)) {
      _index_put_(joined->input, expand_masks(joined->input, joined->indices, "index_put"), values, accumulate);
      return self;
    }
  }
  _index_put_(self, expand_masks(self, indices, "index_put"), values, accumulate);
  return self;
}

Tensor take_along_dim(const Tensor& input, const Tensor& indices, std::optional<int64_t> dim) {
  TG_CHECK(indices.dtype() == DType::int64, Runtime, "take_along_dim: dtype of indices should be Long: got {}",
           indices.dtype());
  const auto wrapped = [](const Tensor& at, int64_t size) { return where(lt(at, 0), add(at, size), at); };
  if (!dim) return gather(reshape(input, {-1}), 0, wrapped(reshape(indices, {-1}), input.numel()));
  TG_CHECK(input.ndim() == indices.ndim(), Runtime,
           "take_along_dim: input and indices should have the same number of dimensions: got {} and {}",
           format_ints(input.sizes()), format_ints(indices.sizes()));
  const int64_t d = wrap_dim(*dim, input.ndim(), "take_along_dim");
  if (input.ndim() == 0) return gather(input, 0, indices);
  // Broadcast everything but dim.
  DimVector a(input.sizes()), b(indices.sizes());
  const int64_t length = a[d], wanted = b[d];
  a[d] = b[d] = 1;
  DimVector common = broadcast_sizes(a, b, "take_along_dim");
  DimVector input_sizes(common), index_sizes(common);
  input_sizes[d] = length;
  index_sizes[d] = wanted;
  return gather(expand(input, input_sizes), d, expand(wrapped(indices, length), index_sizes));
}

Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<int64_t> padding_idx,
                 std::optional<double> max_norm, double norm_type, bool scale_grad_by_freq, bool sparse) {
  TG_CHECK(weight.ndim() == 2, Runtime, "embedding: expected a weight matrix: got sizes {}",
           format_ints(weight.sizes()));
  int64_t padding = -1;
  if (padding_idx) {
    TG_CHECK(*padding_idx >= -weight.size(0) && *padding_idx < weight.size(0), Index,
             "embedding: padding_idx {} is out of bounds for {} rows", *padding_idx, weight.size(0));
    padding = *padding_idx < 0 ? *padding_idx + weight.size(0) : *padding_idx;
  }
  if (max_norm) {
    NoGradGuard guard;
    Tensor rows = std::get<0>(raw::_unique(raw::to(raw::reshape(input, {-1}), DType::int64)));
    Tensor used = index_select(weight, 0, rows);
    Tensor norms = pow(sum(pow(abs(used), norm_type), IntSpan({1}), true), 1 / norm_type);
    Tensor scale = where(gt(norms, *max_norm), mul(reciprocal(add(norms, 1e-7)), *max_norm), 1.0);
    index_copy_(weight, 0, rows, mul(used, to(scale, weight.dtype())));
  }
  return _embedding(weight, input, padding, scale_grad_by_freq, sparse);
}

Tensor one_hot(const Tensor& tensor, int64_t num_classes) {
  TG_CHECK(tensor.dtype() == DType::int64, Runtime, "one_hot: expected class indices of dtype int64: got {}",
           tensor.dtype());
  NoGradGuard guard;
  DimVector sizes(tensor.sizes());
  TG_CHECK(tensor.numel() > 0 || num_classes > 0, Runtime,
           "one_hot: the number of classes cannot be inferred from a tensor without elements");
  if (num_classes == -1) {
    const int64_t largest = max(tensor).item<int64_t>();
    const CheckedInt count = CheckedInt(largest) + 1;
    TG_CHECK(count.fits(), Runtime, "one_hot: class index {} is too large", largest);
    num_classes = count.value();
  }
  TG_CHECK(num_classes > 0, Runtime, "one_hot: expected at least one class: got {}", num_classes);
  sizes.push_back(num_classes);
  Tensor out = zeros(sizes, DType::int64, tensor.device());
  return scatter_(out, -1, unsqueeze(tensor, -1), Scalar(1));
}

Tensor diag(const Tensor& input, int64_t diagonal) {
  TG_CHECK(input.ndim() == 1 || input.ndim() == 2, Runtime, "diag: expected 1 or 2 dimensions: got {}",
           format_ints(input.sizes()));
  if (input.ndim() == 1) return diag_embed(input, diagonal);
  return clone(tapegrad::diagonal(input, diagonal), MemoryFormat::Contiguous);
}

namespace {
Tensor copy_with(const Tensor& input, const Tensor& src, const char* op,
                 const std::function<Tensor(const Tensor&)>& part) {
  Tensor out = clone(input);
  Tensor target = part(out);
  TG_CHECK(target.sizes() == src.sizes(), Runtime, "{}: expected src of sizes {}: got {}", op,
           format_ints(target.sizes()), format_ints(src.sizes()));
  copy_(target, src);
  return out;
}
}  // namespace

Tensor diagonal_scatter(const Tensor& input, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2) {
  return copy_with(input, src, "diagonal_scatter", [&](const Tensor& t) { return diagonal(t, offset, dim1, dim2); });
}

Tensor select_scatter(const Tensor& input, const Tensor& src, int64_t dim, int64_t index) {
  return copy_with(input, src, "select_scatter", [&](const Tensor& t) { return select(t, dim, index); });
}

Tensor as_strided_scatter(const Tensor& input, const Tensor& src, IntSpan size, IntSpan stride,
                          std::optional<int64_t> storage_offset) {
  // The view is of the storage, so the copy has the input's place in it: strides, gaps and offset. A tensor whose
  // elements share memory is copied densely.
  const int64_t offset = storage_offset.value_or(input.storage_offset());
  const auto part = [&](const Tensor& t) { return as_strided(t, size, stride, offset); };
  const bool shared = has_internal_overlap(input);
  if (shared || (input.storage_offset() == 0 && input.is_contiguous()))
    return copy_with(shared ? contiguous(input) : input, src, "as_strided_scatter", part);
  int64_t reach = input.storage_offset() + (input.numel() > 0);
  for (int d = 0; d < input.ndim() && input.numel() > 0; ++d)
    reach += (input.impl()->size(d) - 1) * input.impl()->stride(d);
  const Tensor whole = copy_with(as_strided(input, {reach}, {1}, 0), src, "as_strided_scatter", part);
  return as_strided(whole, input.sizes(), input.strides(), input.storage_offset());
}

Tensor index_reduce(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source,
                    std::string_view reduce, bool include_self) {
  TG_CHECK(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin", Runtime,
           "index_reduce: reduce is prod, mean, amax or amin: got '{}'", reduce);
  TG_CHECK(index.ndim() <= 1, Index, "index_reduce: expected an index with at most 1 dimension: got sizes {}",
           format_ints(index.sizes()));
  TG_CHECK(source.dtype() == input.dtype(), Runtime,
           "index_reduce: expected the source to be {} as the input is: got {}", input.dtype(), source.dtype());
  const int64_t d = wrap_dim(dim, input.ndim(), "index_reduce");
  DimVector expected(input.sizes());
  if (!expected.empty()) expected[d] = index.numel();
  TG_CHECK(IntSpan(expected) == source.sizes(), Index,
           "index_reduce: expected a source of sizes {} for {} indices: got {}", format_ints(expected), index.numel(),
           format_ints(source.sizes()));
  DimVector wide(static_cast<size_t>(input.ndim()), 1);
  if (!wide.empty()) wide[d] = index.numel();
  return scatter_reduce(input, d, expand(reshape(index, wide), expected), source, reduce, include_self);
}

Tensor nonzero_static(const Tensor& input, int64_t size, int64_t fill_value) {
  TG_CHECK(size >= 0, Runtime, "nonzero_static: size must not be negative: got {}", size);
  const Tensor out = full(IntSpan({size, input.ndim()}), fill_value, DType::int64, input.device());
  if (input.is_meta()) return out;
  const Tensor found = raw::nonzero(input);
  const int64_t rows = std::min(size, found.size(0));
  copy_(narrow(out, 0, 0, rows), narrow(found, 0, 0, rows));
  return out;
}

std::vector<Tensor> unravel_index(const Tensor& indices, IntSpan shape) {
  TG_CHECK(is_integral(indices.dtype()), Type, "unravel_index: expected 'indices' to be integer dtype: got {}",
           indices.dtype());
  for (int64_t s : shape)
    TG_CHECK(s >= 0, Value, "unravel_index: sizes must not be negative: got {}", format_ints(shape));
  const int64_t n = checked_numel(shape, "unravel_index");
  if (indices.numel() > 0 && !indices.is_meta()) {
    NoGradGuard guard;
    const int64_t low = min(indices).item<int64_t>(), high = max(indices).item<int64_t>();
    TG_CHECK(low >= 0 && high < n, Value, "unravel_index: indices from {} to {} are out of bounds for shape {}", low,
             high, format_ints(shape));
  }
  std::vector<Tensor> result(shape.size());
  const Tensor places = to(indices, DType::int64);
  int64_t step = 1;
  for (size_t k = shape.size(); k-- > 0;) {
    result[k] = remainder(floor_divide(places, step), std::max<int64_t>(shape[k], 1));
    step *= std::max<int64_t>(shape[k], 1);
  }
  return result;
}

Tensor slice_scatter(const Tensor& input, const Tensor& src, int64_t dim, std::optional<int64_t> start,
                     std::optional<int64_t> end, int64_t step) {
  return copy_with(input, src, "slice_scatter", [&](const Tensor& t) { return _slice(t, dim, start, end, step); });
}

}  // namespace tapegrad::composite
