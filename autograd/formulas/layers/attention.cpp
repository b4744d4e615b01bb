#include "tapegrad/autograd/formulas/layers/attention.h"

#include "tapegrad/aten/attention/plain.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/formulas/reverse.h"

namespace tapegrad {
namespace {

// Sums the heads that share one head of key or value.
Tensor unshare_heads(const Tensor& t, int64_t heads) {
  if (t.size(1) == heads) return t;
  return sum(reshape(t, {t.size(0), heads, t.size(1) / heads, t.size(2), t.size(3)}), OptionalInts(IntSpan{2}));
}

Tensor narrowed(const Tensor& t, DType dtype) { return t.dtype() == dtype ? t : to(t, dtype); }

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_double_grad(const Tensor& grad_query, const Tensor& grad_key,
                                                                 const Tensor& grad_value, const Tensor& grad_output,
                                                                 const Tensor& query, const Tensor& key,
                                                                 const Tensor& value, const Tensor& attn_mask,
                                                                 bool is_causal, double scale, const Tensor& kept,
                                                                 double kept_scale, std::array<bool, 4> mask) {
  using attention::widened;
  Tensor wide_mask = attn_mask.defined() && attn_mask.is_floating_point() ? widened(attn_mask) : attn_mask;
  auto f = [=](const std::vector<Tensor>& x) {
    Tensor g = widened(x[0]), q = widened(x[1]);
    int64_t heads = q.size(1), shared = x[2].size(1);
    DType dtype = x[1].dtype();
    Tensor k = attention::share_heads(widened(x[2]), heads), v = attention::share_heads(widened(x[3]), heads);
    const auto dropped = [&](const Tensor& t) { return kept.defined() ? _masked_scale(t, kept, kept_scale) : t; };
    Tensor w = attention::weights(q, k, wide_mask, is_causal, scale);
    Tensor dw = dropped(matmul(g, transpose(v, -2, -1)));
    Tensor ds = mul(mul(w, sub(dw, sum(mul(dw, w), OptionalInts(IntSpan{-1}), true))), scale);
    Tensor dk = matmul(transpose(ds, -2, -1), q), dv = matmul(transpose(dropped(w), -2, -1), g);
    return std::vector<Tensor>{narrowed(matmul(ds, k), dtype), narrowed(unshare_heads(dk, shared), dtype),
                               narrowed(unshare_heads(dv, shared), dtype)};
  };
  std::vector<Tensor> r = reverse(f, {grad_output, query, key, value}, {mask[0], mask[1], mask[2], mask[3]},
                                  {grad_query, grad_key, grad_value});
  return {r[0], r[1], r[2], r[3]};
}

}  // namespace tapegrad
