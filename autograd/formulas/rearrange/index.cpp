#include "tapegrad/autograd/formulas/rearrange/index.h"

#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {

namespace {
Tensor zeros_of(IntSpan sizes, const Tensor& grad) { return zeros(sizes, grad.dtype(), grad.device()); }

// A number as one element in one dimension, which is how scatter takes it beside tensors of one.
Tensor with_a_dimension(const Tensor& t) { return t.ndim() == 0 ? reshape(t, IntSpan{1}) : t; }

// Elements of a source in the shape of an index, and back again with zeros where the index does not reach.
Tensor covered(const Tensor& source, IntSpan index_sizes) {
  if (source.sizes() == index_sizes) return source;
  const Tensor from = contiguous(with_a_dimension(source));
  if (index_sizes.empty()) return reshape(narrow(from, 0, 0, 1), index_sizes);
  return as_strided(from, index_sizes, contiguous_strides(from.sizes()), from.storage_offset());
}
Tensor uncovered(const Tensor& per_element, IntSpan sizes) {
  if (per_element.sizes() == sizes) return per_element;
  if (sizes.empty()) return reshape(per_element, sizes);
  const Tensor from = with_a_dimension(per_element);
  return _embed_view(from, sizes, from.sizes(), contiguous_strides(sizes), 0);
}
}  // namespace

// An index as the places (1, n) of a sparse gradient, in memory of their own: the program may write to its index later.
static Tensor own_row(const Tensor& index) {
  const Tensor places = index.dtype() == DType::int64 ? raw::clone(index) : raw::to(index, DType::int64);
  return raw::reshape(places, {1, -1});
}

Tensor index_grad(const Tensor& grad, IntSpan sizes, TensorSpan indices) {
  const Tensor zeros = zeros_of(sizes, grad);
  if (grad.is_batched()) return _index_put(zeros, indices, grad, true);  // the zeros are the same in all samples
  return _index_put_(zeros, indices, grad, true);
}

Tensor index_put_self_grad(const Tensor& grad, TensorSpan indices, bool accumulate) {
  return accumulate ? grad : _index_put(grad, indices, zeros_of({}, grad), false);
}

Tensor index_put_values_grad(const Tensor& grad, TensorSpan indices, IntSpan sizes) {
  return autograd::reduce_to(_index_tensor(grad, indices), {DimVector(sizes), grad.dtype(), grad.device()});
}

Tensor index_select_grad(const Tensor& grad, IntSpan sizes, int64_t dim, const Tensor& index, bool sparse) {
  if (sparse && !grad.is_batched()) return sparse::make(own_row(index), grad, sizes, false);
  const Tensor zeros = zeros_of(sizes, grad);
  return grad.is_batched() ? index_add(zeros, dim, index, grad) : index_add_(zeros, dim, index, grad);
}

Tensor index_add_source_grad(const Tensor& grad, int64_t dim, const Tensor& index, IntSpan sizes, const Scalar& alpha) {
  Tensor g = index_select(grad, dim, index);
  if (!(alpha == Scalar(1))) g = mul(g, alpha);
  return g.sizes() == sizes ? g : reshape(g, sizes);
}

Tensor index_unwrapped(const Tensor& index, const Tensor& t, int64_t dim) {
  return raw::remainder(index, t.ndim() ? t.size(dim) : 1);
}

Tensor gather_grad(const Tensor& grad, IntSpan sizes, int64_t dim, const Tensor& index, bool sparse) {
  const Tensor places = index.dtype() == DType::uint8 ? index.to(DType::int64) : index;
  if (sparse && !grad.is_batched() && !sizes.empty()) {
    const size_t along = static_cast<size_t>(wrap_dim(dim, static_cast<int64_t>(sizes.size()), "gather"));
    std::vector<Tensor> coordinates;
    for (size_t d = 0; d < sizes.size(); ++d) {
      DimVector broad(sizes.size(), 1);
      broad[d] = index.sizes()[d];
      Tensor at = raw::to(index, DType::int64);
      if (d != along) at = raw::reshape(raw::_arange_end(Scalar(broad[d]), DType::int64, index.device()), broad);
      coordinates.push_back(raw::reshape(raw::expand(at, index.sizes()), {-1}));
    }
    return sparse::make(raw::stack(coordinates, 0), reshape(grad, {-1}), sizes, false);
  }
  const Tensor zeros = zeros_of(sizes, grad);
  return grad.is_batched() ? scatter_add(zeros, dim, places, grad) : scatter_add_(zeros, dim, places, grad);
}

Tensor scatter_source_grad(const Tensor& grad, int64_t dim, const Tensor& index, IntSpan sizes) {
  if (index.numel() == 0) return zeros_of(sizes, grad);
  return uncovered(gather(grad, dim, index), sizes);
}

Tensor scatter_src_reduce_self_grad(const Tensor& grad, std::string_view reduce) {
  TG_CHECK(reduce == "add", NotImplemented,
           "scatter: reduce=\"multiply\" is not differentiable\nuse scatter_reduce with \"prod\"");
  return grad;
}

std::tuple<Tensor, Tensor> scatter_reduce_grad(const Tensor& grad, const Tensor& input, int64_t dim,
                                               const Tensor& index, const Tensor& src, std::string_view reduce,
                                               bool include_self, const Tensor& result, std::array<bool, 2>) {
  Tensor for_input, for_src;
  auto source = [&](const Tensor& per_element) { return uncovered(per_element, src.sizes()); };
  auto picked = [&](const Tensor& t) { return gather(t, dim, index); };
  if (index.numel() == 0) return {grad, zeros_of(src.sizes(), grad)};
  const Tensor used = covered(src, index.sizes());
  if (reduce == "sum") {
    for_input = grad;
    for_src = picked(grad);
  } else if (reduce == "mean") {
    Tensor ones_used = ones(index.sizes(), grad.dtype(), grad.device());
    Tensor count = include_self ? ones_like(grad) : zeros_like(grad);
    count = scatter_add(count, dim, index, ones_used);
    count = masked_fill(count, eq(count, 0), 1);
    Tensor share = div(grad, count);
    for_input = share;
    for_src = picked(share);
  } else if (reduce == "prod") {
    // Divide the product by each factor; where one factor is zero, the others' product without it.
    Tensor input_zero = eq(input, 0);
    Tensor input_safe = masked_fill(input, input_zero, 1);
    Tensor without_input = scatter_reduce(ones_like(input), dim, index, src, "prod", true);
    for_input = mul(grad, without_input);
    Tensor zero_src = eq(used, 0);
    Tensor zeros_seen = scatter_add(include_self ? to(input_zero, grad.dtype()) : zeros_like(grad), dim, index,
                                    to(zero_src, grad.dtype()));
    Tensor safe = masked_fill(used, zero_src, 1);
    Tensor safe_result = scatter_reduce(include_self ? input_safe : scatter(ones_like(input), dim, index, Scalar(1)),
                                        dim, index, safe, "prod", true);
    Tensor others_zero = sub(picked(zeros_seen), to(zero_src, grad.dtype()));
    Tensor others = div(picked(safe_result), safe);
    others = masked_fill(others, ne(others_zero, 0), 0);
    if (grad_enabled()) {
      // A single zero among the others makes their product zero, but not its derivative: it stays as a factor.
      const Tensor zeros_here = masked_fill(used, logical_not(zero_src), 0);
      Tensor values = include_self ? masked_fill(input, logical_not(input_zero), 0) : zeros_like(input);
      Tensor zero = sub(picked(scatter_add(values, dim, index, zeros_here)), zeros_here);
      others = where(eq(others_zero, 1), mul(div(picked(safe_result), safe), zero), others);
    }
    for_src = mul(picked(grad), others);
  } else {
    Tensor hit_src = to(eq(used, picked(result)), grad.dtype());
    Tensor hit_input = to(eq(input, result), grad.dtype());
    if (!include_self) hit_input = scatter(hit_input, dim, index, Scalar(0));
    // Equal extremes share the gradient.
    Tensor count = scatter_add(hit_input, dim, index, hit_src);
    count = masked_fill(count, eq(count, 0), 1);
    Tensor share = div(grad, count);
    for_input = mul(share, hit_input);
    for_src = mul(picked(share), hit_src);
    if (!include_self) return {scatter(grad, dim, index, Scalar(0)), source(for_src)};
    // Elements that no index touches keep all of their gradient: they are their own extreme.
    return {for_input, source(for_src)};
  }
  if (!include_self) for_input = scatter(for_input, dim, index, Scalar(0));
  return {for_input, source(for_src)};
}

Tensor masked_select_grad(const Tensor& grad, const Tensor& mask, IntSpan sizes) {
  const DimVector common = broadcast_sizes(sizes, mask.sizes(), "masked_select");
  Tensor full = masked_scatter(zeros_of(common, grad), mask, grad);
  return autograd::reduce_to(full, {DimVector(sizes), grad.dtype(), grad.device()});
}

Tensor embedding_weight_grad(const Tensor& grad, const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                             bool scale_grad_by_freq, bool sparse) {
  if (sparse) {
    TG_CHECK(!scale_grad_by_freq, Runtime,
             "embedding_backward: scale_grad_by_freq not supported with sparse gradients");
    Tensor flat = raw::reshape(indices, {-1}), rows = reshape(grad, {flat.size(0), grad.size(-1)});
    if (padding_idx >= 0) {
      const Tensor kept = raw::select(raw::nonzero(raw::ne(flat, padding_idx)), 1, 0);
      flat = raw::index_select(flat, 0, kept);
      rows = index_select(rows, 0, kept);
    }
    return sparse::make(own_row(flat), rows, {num_weights, grad.size(-1)}, false);
  }
  return _embedding_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq);
}

namespace {
// The indices that lie in bags, and what the gradient of each of their rows is made of.
struct Bags {
  Tensor indices, spread;
  Tensor counted;  // a factor per row: 0 for padding, the mean's share; undefined: 1

  Bags(const Tensor& grad, const Tensor& given, const Tensor& offsets, bool mean, int64_t padding_idx) {
    const int64_t bags = offsets.size(0) - 1;
    Tensor bag;
    {
      NoGradGuard guard;
      const Tensor counts = sub(narrow(offsets, 0, 1, bags), narrow(offsets, 0, 0, bags));
      bag = repeat_interleave(arange(Scalar(bags), DType::int64, grad.device()), to(counts, DType::int64));
      indices = narrow(given, 0, 0, bag.size(0));  // the last bag may end before the list does
      const Tensor kept = padding_idx >= 0 ? ne(indices, padding_idx) : Tensor();
      if (kept.defined()) counted = to(kept, grad.dtype());
      if (mean) {  // counts are whole numbers: of 16 bits they would stop at 256 or 2048
        const Tensor each = kept.defined() ? to(kept, DType::int64) : ones_like(bag);
        const Tensor sizes = clamp_min(index_add(zeros({bags}, DType::int64, grad.device()), 0, bag, each), 1);
        counted = to(reciprocal(to(index_select(sizes, 0, bag), DType::float64)), grad.dtype());
      }
    }
    spread = index_select(grad, 0, bag);
  }
};
}  // namespace

Tensor embedding_bag_weight_grad(const Tensor& grad, int64_t num_weights, const Tensor& indices, const Tensor& offsets,
                                 const Tensor& per_sample_weights, bool mean, int64_t padding_idx,
                                 bool scale_grad_by_freq, bool sparse) {
  const Bags bags(grad, indices, offsets, mean, padding_idx);
  Tensor rows = bags.spread;
  if (mean) rows = mul(rows, unsqueeze(bags.counted, 1));
  if (per_sample_weights.defined())
    rows = mul(rows, unsqueeze(narrow(per_sample_weights, 0, 0, bags.indices.size(0)), 1));
  return embedding_weight_grad(rows, bags.indices, num_weights, padding_idx, scale_grad_by_freq, sparse);
}

Tensor embedding_bag_factor_grad(const Tensor& grad, const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                                 bool mean, int64_t padding_idx) {
  const Bags bags(grad, indices, offsets, mean, padding_idx);
  Tensor products = sum(mul(bags.spread, index_select(weight, 0, bags.indices)), OptionalInts(IntSpan{1}));
  // Not a product: the row of padding_idx may hold NaN.
  if (bags.counted.defined()) products = mean ? mul(products, bags.counted) : where(eq(bags.counted, 0), 0, products);
  const int64_t unused = indices.size(0) - products.size(0);
  return unused == 0 ? products : constant_pad_nd(products, {0, unused}, 0);
}

Tensor embedding_backward_grad(const Tensor& grad, const Tensor& indices, int64_t padding_idx,
                               bool scale_grad_by_freq) {
  Tensor g = grad;
  if (scale_grad_by_freq) {
    Tensor flat = raw::reshape(indices, {-1});
    Tensor count = raw::clamp_min(raw::bincount(flat, {}, grad.size(0)), 1);
    g = div(g, raw::unsqueeze(raw::to(count, grad.dtype()), 1));
  }
  if (padding_idx >= 0 && padding_idx < grad.size(0))
    g = index_fill(g, 0, raw::full({1}, padding_idx, DType::int64, grad.device()), 0);
  return _embedding(g, indices);
}

}  // namespace tapegrad
