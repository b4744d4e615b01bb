// Shapes and checks of the attention kernel.
#include "tapegrad/aten/kernels_attention.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {

std::array<TensorSpec, 2> attention_shape(const Tensor& query, const Tensor& key, const Tensor& value,
                                          const Tensor& attn_mask, [[maybe_unused]] bool is_causal,
                                          [[maybe_unused]] double scale, const Tensor& kept,
                                          [[maybe_unused]] double kept_scale) {
  const char* op = "scaled_dot_product_attention";
  TG_CHECK(query.is_floating_point() && query.dtype() == key.dtype() && query.dtype() == value.dtype(), Runtime,
           "{}: query, key and value must be of one floating dtype: got {}, {} and {}", op, query.dtype(), key.dtype(),
           value.dtype());
  auto fits = [&] {
    return query.ndim() == 4 && key.ndim() == 4 && value.ndim() == 4 && query.size(0) == key.size(0) &&
           key.size(0) == value.size(0) && key.size(1) == value.size(1) && key.size(2) == value.size(2) &&
           query.size(3) == key.size(3) && (key.size(1) == 0 ? query.size(1) == 0 : query.size(1) % key.size(1) == 0);
  };
  TG_CHECK(fits(), Runtime, "{}: shapes do not fit: query {}, key {}, value {}", op, format_ints(query.sizes()),
           format_ints(key.sizes()), format_ints(value.sizes()));
  DimVector rows{query.size(0), query.size(1), query.size(2)};
  const DimVector full{rows[0], rows[1], rows[2], key.size(2)};
  if (attn_mask.defined()) {
    TG_CHECK(attn_mask.sizes() == IntSpan(full), Runtime, "{}: attn_mask of shape {} for weights of shape {}", op,
             format_ints(attn_mask.sizes()), format_ints(full));
    TG_CHECK(attn_mask.dtype() == DType::bool_ || attn_mask.dtype() == query.dtype(), Runtime,
             "{}: attn_mask must be bool or of the query's dtype: got {} and {}", op, attn_mask.dtype(), query.dtype());
  }
  TG_CHECK(!kept.defined() || (kept.dtype() == DType::bool_ && kept.sizes() == IntSpan(full)), Runtime,
           "{}: kept must be bool and of shape {}: got {} {}", op, format_ints(full), kept.dtype(),
           format_ints(kept.sizes()));
  return {TensorSpec{{rows[0], rows[1], rows[2], value.size(3)}, query.dtype(), query.device(), {}},
          TensorSpec{rows, compute_dtype(query.dtype()), query.device(), {}}};
}

std::array<TensorSpec, 3> attention_grad_shape(const Tensor& grad_output, const Tensor& query, const Tensor& key,
                                               const Tensor& value, const Tensor& attn_mask, const Tensor& output,
                                               const Tensor& logsumexp, bool is_causal, double scale,
                                               const Tensor& kept, double kept_scale) {
  auto [out, lse] = attention_shape(query, key, value, attn_mask, is_causal, scale, kept, kept_scale);
  TG_CHECK(grad_output.sizes() == IntSpan(out.sizes) && output.sizes() == IntSpan(out.sizes) &&
               logsumexp.sizes() == IntSpan(lse.sizes) && grad_output.dtype() == out.dtype &&
               output.dtype() == out.dtype && logsumexp.dtype() == lse.dtype,
           Runtime, "scaled_dot_product_attention: gradient {} {} for output {} {}", grad_output.dtype(),
           format_ints(grad_output.sizes()), out.dtype, format_ints(out.sizes));
  auto like = [](const Tensor& t) { return TensorSpec{DimVector(t.sizes()), t.dtype(), t.device(), {}}; };
  return {like(query), like(key), like(value)};
}

}  // namespace tapegrad
