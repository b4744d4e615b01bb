// Bags of embeddings: checks, results, and the public function.
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad {
namespace {

void check_bags(const Tensor& weight, const Tensor& indices, const Tensor& offsets) {
  TG_CHECK(weight.ndim() == 2, Runtime, "embedding_bag: expected a weight matrix: got sizes {}",
           format_ints(weight.sizes()));
  TG_CHECK(weight.is_floating_point(), Runtime, "embedding_bag: expected floating weights: got {}", weight.dtype());
  TG_CHECK(indices.ndim() == 1 && indices.dtype() == DType::int64, Runtime,
           "embedding_bag: expected a list of indices of dtype int64: got {} {}", indices.dtype(),
           format_ints(indices.sizes()));
  TG_CHECK(offsets.ndim() == 1 && offsets.dtype() == DType::int64 && offsets.numel() > 0, Runtime,
           "embedding_bag: expected a list of offsets of dtype int64: got {} {}", offsets.dtype(),
           format_ints(offsets.sizes()));
}

}  // namespace

TensorSpec embedding_bag_shape(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                               const Tensor& per_sample_weights, bool, int64_t, bool, bool) {
  check_bags(weight, indices, offsets);
  if (per_sample_weights.defined())
    TG_CHECK(per_sample_weights.sizes() == indices.sizes() && per_sample_weights.dtype() == weight.dtype(), Runtime,
             "embedding_bag: expected per_sample_weights {} of dtype {}: got {} {}", format_ints(indices.sizes()),
             weight.dtype(), per_sample_weights.dtype(), format_ints(per_sample_weights.sizes()));
  return {{offsets.size(0) - 1, weight.size(1)}, weight.dtype(), weight.device(), {}};
}

TensorSpec embedding_bag_argmax_shape(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t) {
  check_bags(weight, indices, offsets);
  return {{offsets.size(0) - 1, weight.size(1)}, DType::int64, weight.device(), {}};
}

namespace composite {
namespace {

Tensor as_int64(const Tensor& t, const char* name) {
  TG_CHECK(t.dtype() == DType::int64 || t.dtype() == DType::int32, Runtime,
           "embedding_bag: expected {} of dtype int64 or int32: got {}", name, t.dtype());
  return t.dtype() == DType::int64 ? t : raw::to(t, DType::int64);
}

}  // namespace

Tensor embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets, std::optional<double> max_norm,
                     double norm_type, bool scale_grad_by_freq, std::string_view mode, bool sparse,
                     const Tensor& per_sample_weights, bool include_last_offset, std::optional<int64_t> padding_idx) {
  if (input.is_floating_point() && is_integral(weight.dtype())) {  // the order that PyTorch once had
    warn("embedding_bag: Argument order of nn.functional.embedding_bag was changed: call it with (input, weight, ...)");
    return tapegrad::embedding_bag(weight, input, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
                                   per_sample_weights, include_last_offset, padding_idx);
  }
  TG_CHECK(weight.ndim() == 2, Runtime, "embedding_bag: expected a weight matrix: got sizes {}",
           format_ints(weight.sizes()));
  TG_CHECK(mode == "sum" || mode == "mean" || mode == "max", Value, "mode has to be one of sum, mean or max: got {}",
           mode);
  TG_CHECK(input.ndim() == 1 || input.ndim() == 2, Value,
           "input has to be 1D or 2D Tensor, but got Tensor of dimension {}", input.ndim());
  TG_CHECK(
      input.ndim() == 1 || !offsets.defined(), Value,
      "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences");
  TG_CHECK(input.ndim() == 2 || offsets.defined(), Value, "offsets has to be a 1D Tensor but got None");
  TG_CHECK(!offsets.defined() || offsets.ndim() == 1, Value, "offsets has to be a 1D Tensor");
  TG_CHECK(!per_sample_weights.defined() || per_sample_weights.sizes() == input.sizes(), Value,
           "embedding_bag: If per_sample_weights ({}) is not None, then it must have the same shape as the input ({})",
           per_sample_weights.defined() ? format_ints(per_sample_weights.sizes()) : "", format_ints(input.sizes()));
  TG_CHECK(!per_sample_weights.defined() || mode == "sum", NotImplemented,
           "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got "
           "mode='{}'). Please open a feature request on GitHub.",
           mode);
  TG_CHECK(!scale_grad_by_freq || mode != "max", Value,
           "max mode does not support scaling the gradient by the frequency");
  TG_CHECK(!sparse || mode != "max", Value, "max mode does not support sparse weights");
  int64_t padding = -1;
  if (padding_idx) {
    TG_CHECK(*padding_idx >= -weight.size(0) && *padding_idx < weight.size(0), Runtime,
             "embedding_bag: padding_idx must be within the number of embeddings {}: got {}", weight.size(0),
             *padding_idx);
    padding = *padding_idx < 0 ? *padding_idx + weight.size(0) : *padding_idx;
  }
  Tensor indices, bounds;
  {
    NoGradGuard guard;
    indices = as_int64(raw::reshape(input, {-1}), "input");
    const int64_t n = indices.size(0);
    if (input.ndim() == 2) {
      const int64_t bags = input.size(0), each = input.size(1);
      bounds = mul(arange(Scalar(bags + 1), DType::int64, input.device()), each);
    } else {
      bounds = as_int64(offsets, "offsets");
      const Tensor end[] = {bounds, full({1}, Scalar(n), DType::int64, input.device())};
      TG_CHECK(!include_last_offset || bounds.numel() > 0, Runtime,
               "embedding_bag: include_last_offset: number of offset should be at least 1");
      // PyTorch reads the last offset only where it takes its short way; else the last bag goes to the end of the list.
      const bool short_way = !padding_idx && mode != "max" && weight.dtype() != DType::float64;
      if (!include_last_offset)
        bounds = cat(end, 0);
      else if (!short_way && bounds.numel() > 1)
        bounds = cat(std::array{narrow(bounds, 0, 0, bounds.numel() - 1), end[1]}, 0);
    }
    if (max_norm) {
      Tensor rows = std::get<0>(raw::_unique(indices));
      Tensor used = index_select(weight, 0, rows);
      Tensor norms = pow(sum(pow(abs(used), norm_type), IntSpan({1}), true), 1 / norm_type);
      Tensor scale = where(gt(norms, *max_norm), mul(reciprocal(add(norms, 1e-7)), *max_norm), 1.0);
      index_copy_(weight, 0, rows, mul(used, to(scale, weight.dtype())));
    }
  }
  if (mode != "max") {
    const Tensor factors = per_sample_weights.defined() ? reshape(per_sample_weights, {-1}) : per_sample_weights;
    return _embedding_bag(weight, indices, bounds, factors, mode == "mean", padding, scale_grad_by_freq, sparse);
  }
  const Tensor at = _embedding_bag_argmax(weight, indices, bounds, padding), none = lt(at, 0);
  if (weight.size(0) == 0) return zeros(at.sizes(), weight.dtype(), weight.device());
  return masked_fill(gather(weight, 0, masked_fill(at, none, 0)), none, 0);
}

}  // namespace composite
}  // namespace tapegrad
