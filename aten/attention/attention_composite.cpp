// The public attention function, which reshapes its arguments to the kernel's four dimensions; and attention on whole
// matrices.
#include <cmath>
#include <limits>

#include "tapegrad/aten/attention/plain.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_attention.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {

namespace attention {

Tensor widened(const Tensor& t) { return t.defined() && is_half(t.dtype()) ? to(t, DType::float32) : t; }

Tensor share_heads(const Tensor& t, int64_t heads) {
  int64_t own = t.size(1);
  if (own == heads) return t;
  Tensor repeated = expand(unsqueeze(t, 2), {t.size(0), own, heads / own, t.size(2), t.size(3)});
  return reshape(repeated, {t.size(0), heads, t.size(2), t.size(3)});
}

Tensor weights(const Tensor& query, const Tensor& key, const Tensor& attn_mask, bool is_causal, double scale) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Tensor scores = mul(matmul(query, transpose(key, -2, -1)), scale);
  if (scores.size(-1) == 0) return scores;
  if (is_causal) {
    Tensor seen = tril(ones({query.size(2), key.size(2)}, DType::bool_, query.device()), 0);
    scores = masked_fill(scores, logical_not(seen), Scalar(-kInfinity));
  }
  if (!attn_mask.defined()) return softmax(scores, -1);
  scores = attn_mask.dtype() == DType::bool_ ? masked_fill(scores, logical_not(attn_mask), Scalar(-kInfinity))
                                             : add(scores, attn_mask);
  Tensor blind = eq(amax(scores.detach(), IntSpan{-1}, true), Scalar(-kInfinity));
  return masked_fill(softmax(masked_fill(scores, blind, Scalar(0)), -1), blind, Scalar(0));
}

}  // namespace attention

namespace composite {
namespace {

constexpr const char* kName = "scaled_dot_product_attention";

DimVector leading(const Tensor& t, int64_t dropped) {
  return DimVector(IntSpan(t.sizes().data(), static_cast<size_t>(t.ndim() - dropped)));
}

DimVector joined(IntSpan a, IntSpan rest) {
  DimVector r(a);
  for (int64_t v : rest) r.push_back(v);
  return r;
}

// (..., rows, columns) with the given leading sizes as (B, heads, rows, columns).
Tensor four_dimensional(const Tensor& t, IntSpan lead, int64_t rows) {
  DimVector full = joined(lead, {rows, t.size(-1)});
  Tensor expanded = t.sizes() == IntSpan(full) ? t : expand(t, full);
  if (full.size() == 4) return expanded;
  int64_t heads = lead.empty() ? 1 : lead.back(), batch = 1;
  for (size_t d = 0; d + 1 < lead.size(); ++d) batch *= lead[d];
  return reshape(expanded, {batch, heads, rows, t.size(-1)});
}

}  // namespace

Tensor attention_plain(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask,
                       bool is_causal, double scale, const Tensor& kept, double kept_scale) {
  Tensor q = attention::widened(query), k = attention::widened(key), v = attention::widened(value);
  Tensor mask = attn_mask.defined() && attn_mask.is_floating_point() ? attention::widened(attn_mask) : attn_mask;
  Tensor w = attention::weights(q, attention::share_heads(k, q.size(1)), mask, is_causal, scale);
  if (kept.defined()) w = _masked_scale(w, kept, kept_scale);
  Tensor out = matmul(w, attention::share_heads(v, q.size(1)));
  return out.dtype() == query.dtype() ? out : to(out, query.dtype());
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  TG_CHECK(query.ndim() >= 2 && key.ndim() >= 2 && value.ndim() >= 2, Runtime,
           "{}: query, key and value need at least 2 dimensions: got shapes {}, {} and {}", kName,
           format_ints(query.sizes()), format_ints(key.sizes()), format_ints(value.sizes()));
  TG_CHECK(!(is_causal && attn_mask.defined()), Runtime, "{}: attn_mask and is_causal do not go together", kName);
  TG_CHECK(dropout_p >= 0 && dropout_p <= 1, Runtime, "{}: dropout_p must be between 0 and 1: got {}", kName,
           dropout_p);
  const bool fits = !attn_mask.defined() || attn_mask.dtype() == DType::bool_ || attn_mask.dtype() == query.dtype();
  TG_CHECK(fits || attn_mask.dtype() == DType::float32, Runtime,
           "{}: attn_mask must be bool, float32 or of the query's dtype: got {} and {}", kName, attn_mask.dtype(),
           query.dtype());
  if (!fits)
    return composite::scaled_dot_product_attention(query, key, value, to(attn_mask, query.dtype()), dropout_p,
                                                   is_causal, scale, enable_gqa);
  DimVector lead_q, lead_k, lead_v;
  if (enable_gqa && query.ndim() >= 3 && key.ndim() >= 3 && value.ndim() >= 3) {
    int64_t heads = query.size(-3), shared = key.size(-3);
    TG_CHECK(shared > 0 && heads % shared == 0 && value.size(-3) == shared, Runtime,
             "{}: {} heads of the query cannot share {} of key and {} of value", kName, heads, shared, value.size(-3));
    DimVector batch =
        broadcast_sizes(broadcast_sizes(leading(query, 3), leading(key, 3), kName), leading(value, 3), kName);
    lead_q = joined(batch, {heads});
    lead_k = lead_v = joined(batch, {shared});
  } else {
    lead_q = broadcast_sizes(broadcast_sizes(leading(query, 2), leading(key, 2), kName), leading(value, 2), kName);
    lead_k = lead_v = lead_q;
  }
  int64_t rows = query.size(-2);
  Tensor q = four_dimensional(query, lead_q, rows), k = four_dimensional(key, lead_k, key.size(-2));
  Tensor v = four_dimensional(value, lead_v, value.size(-2));
  Tensor mask;
  if (attn_mask.defined()) {
    DimVector full = joined(lead_q, {rows, key.size(-2)});
    TG_CHECK(broadcast_sizes(attn_mask.sizes(), full, kName) == full, Runtime,
             "{}: attn_mask of shape {} does not broadcast to {}", kName, format_ints(attn_mask.sizes()),
             format_ints(full));
    mask = four_dimensional(expand(attn_mask, full), lead_q, rows);
  }
  double factor = scale.value_or(query.size(-1) == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  Tensor kept;
  const double kept_scale = dropout_p < 1 ? 1 / (1 - dropout_p) : 0;
  if (dropout_p > 0 && q.numel() > 0)
    kept = _bernoulli_p(expand(zeros({1}, DType::bool_, query.device()), {q.size(0), q.size(1), rows, k.size(2)}),
                        1 - dropout_p);
  Tensor out = mask.defined() && mask.requires_grad() && grad_enabled()
                   ? _attention_plain(q, k, v, mask, is_causal, factor, kept, kept_scale)
                   : std::get<0>(_attention(q, k, v, mask, is_causal, factor, kept, kept_scale));
  return lead_q.size() == 2 ? out : reshape(out, joined(lead_q, {rows, value.size(-1)}));
}

}  // namespace composite
}  // namespace tapegrad
