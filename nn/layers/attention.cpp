#include "tapegrad/nn/layers/attention.h"

#include <cmath>
#include <limits>

#include "tapegrad/aten/functions_attention.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pad.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/nn/init.h"

namespace tapegrad::nn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_shapes(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& padding,
                  const Tensor& mask, int64_t num_heads) {
  const int64_t n = query.dim();
  TG_CHECK(n == 2 || n == 3, Value, "attention: query should be unbatched 2D or batched 3D: got {}D", n);
  TG_CHECK(key.dim() == n && value.dim() == n, Value,
           "attention: for a {}D query, expected key and value of {} dimensions: got {} and {}", n, n, key.dim(),
           value.dim());
  TG_CHECK(!padding.defined() || padding.dim() == n - 1, Value,
           "attention: for a {}D query, expected a key_padding_mask of {} dimensions: got {}", n, n - 1, padding.dim());
  if (!mask.defined()) return;
  TG_CHECK(mask.dim() == 2 || mask.dim() == 3, Value, "attention: expected an attn_mask of 2 or 3 dimensions: got {}",
           mask.dim());
  if (n == 2 && mask.dim() == 3) {
    const DimVector expected{num_heads, query.size(0), key.size(0)};
    TG_CHECK(mask.sizes() == IntSpan(expected), Value, "attention: expected an attn_mask of shape {}: got {}",
             format_ints(expected), format_ints(mask.sizes()));
  }
}

struct Projected {
  Tensor q, k, v;
};

Tensor part(const Tensor& t, int64_t from, int64_t length) { return t.defined() ? t.narrow(0, from, length) : t; }

// The three projections by one weight; a single product where they are of the same tensor.
Projected project(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionWeights& w) {
  const Tensor &weight = w.in_proj_weight, &bias = w.in_proj_bias;
  if (query.is_same(key) && key.is_same(value)) {
    const std::vector<Tensor> parts = tapegrad::linear(query, weight, bias).chunk(3, -1);
    return {parts[0], parts[1], parts[2]};
  }
  const int64_t e = query.size(-1);
  const auto projected = [&](const Tensor& x, int64_t i, int64_t count = 1) {
    return tapegrad::linear(x, part(weight, i * e, count * e), part(bias, i * e, count * e));
  };
  if (key.is_same(value)) {
    const Tensor q = projected(query, 0);
    const std::vector<Tensor> both = projected(key, 1, 2).chunk(2, -1);
    return {q, both[0], both[1]};
  }
  return {projected(query, 0), projected(key, 1), projected(value, 2)};
}

Projected project_separately(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionWeights& w) {
  TG_CHECK(w.q_proj_weight.defined() && w.k_proj_weight.defined() && w.v_proj_weight.defined(), Value,
           "attention: expected in_proj_weight, or the weights of all three projections");
  const int64_t e = query.size(-1);
  return {tapegrad::linear(query, w.q_proj_weight, part(w.in_proj_bias, 0, e)),
          tapegrad::linear(key, w.k_proj_weight, part(w.in_proj_bias, e, e)),
          tapegrad::linear(value, w.v_proj_weight, part(w.in_proj_bias, 2 * e, e))};
}

Tensor checked_mask(const Tensor& mask, int64_t count, int64_t length, int64_t seen) {
  const DimVector expected = mask.dim() == 2 ? DimVector{length, seen} : DimVector{count, length, seen};
  TG_CHECK(mask.sizes() == IntSpan(expected), Runtime, "attention: expected an attn_mask of shape {}: got {}",
           format_ints(expected), format_ints(mask.sizes()));
  return mask.dim() == 2 ? mask.unsqueeze(0) : mask;
}

Tensor widened(const Tensor& mask) { return mask.defined() ? tapegrad::pad(mask, {0, 1}) : mask; }

Tensor joined(const Tensor& a, const Tensor& b, int64_t dim) { return tapegrad::cat(std::vector{a, b}, dim); }

}  // namespace

Tensor canonical_mask(const Tensor& mask, const char* name, DType dtype) {
  if (!mask.defined()) return mask;
  TG_CHECK(mask.dtype() == DType::bool_ || mask.is_floating_point(), Value,
           "attention: only bool and floating types of {} are supported: got {}", name, mask.dtype());
  if (mask.dtype() != DType::bool_) return mask;
  return tapegrad::zeros_like(mask, dtype).masked_fill_(mask, -kInfinity);
}

std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query_, const Tensor& key_, const Tensor& value_,
                                                        int64_t embed_dim, int64_t num_heads, const AttentionWeights& w,
                                                        bool add_zero_attn, double dropout_p, bool training,
                                                        const Tensor& key_padding_mask, bool need_weights,
                                                        const Tensor& attn_mask, bool average_attn_weights,
                                                        bool is_causal) {
  check_shapes(query_, key_, value_, key_padding_mask, attn_mask, num_heads);
  const bool batched = query_.dim() == 3;
  Tensor query = query_, key = key_, value = value_, padding = key_padding_mask, mask = attn_mask;
  if (!batched) {
    query = query_.unsqueeze(1);
    key = key_.is_same(query_) ? query : key_.unsqueeze(1);
    value = value_.is_same(key_) ? key : value_.unsqueeze(1);
    if (padding.defined()) padding = padding.unsqueeze(0);
  }
  const int64_t length = query.size(0), n = query.size(1), width = query.size(2), count = n * num_heads;
  padding = canonical_mask(padding, "key_padding_mask", query.dtype());
  TG_CHECK(!is_causal || mask.defined(), Runtime,
           "attention: is_causal is a hint about attn_mask, and there is none\nhint: "
           "Transformer::generate_square_subsequent_mask makes that mask");
  if (is_causal && !padding.defined() && !need_weights) {
    mask = {};  // the kernel knows this mask
  } else {
    mask = canonical_mask(mask, "attn_mask", query.dtype());
    is_causal = is_causal && !padding.defined();
  }
  TG_CHECK(width == embed_dim, Value, "attention: expected an embedding dimension of {}: got {}", embed_dim, width);
  const int64_t head = width / num_heads;
  TG_CHECK(head * num_heads == width, Value, "attention: embed_dim {} is not divisible by num_heads {}", width,
           num_heads);
  const bool together = w.in_proj_weight.defined();
  TG_CHECK(key.size(0) == value.size(0) && key.size(1) == value.size(1) && (!together || key.size(2) == value.size(2)),
           Value, "attention: the shape of key does not match that of value: {} and {}", format_ints(key.sizes()),
           format_ints(value.sizes()));
  auto [q, k, v] = together ? project(query, key, value, w) : project_separately(query, key, value, w);
  if (mask.defined()) mask = checked_mask(mask, count, length, key.size(0));
  TG_CHECK(w.bias_k.defined() == w.bias_v.defined(), Value, "attention: expected both or none of bias_k and bias_v");
  if (w.bias_k.defined()) {
    k = joined(k, w.bias_k.repeat({1, n, 1}), 0);
    v = joined(v, w.bias_v.repeat({1, n, 1}), 0);
    mask = widened(mask), padding = widened(padding);
  }
  for (Tensor* t : {&q, &k, &v}) *t = t->reshape({t->size(0), count, head}).transpose(0, 1);
  if (add_zero_attn) {
    const Tensor zero = tapegrad::zeros({count, 1, head}, k.dtype(), k.device());
    k = joined(k, zero, 1), v = joined(v, zero, 1);
    mask = widened(mask), padding = widened(padding);
  }
  const int64_t seen = k.size(1);
  if (padding.defined()) {
    TG_CHECK(padding.sizes() == (IntSpan{n, seen}), Value,
             "attention: expected a key_padding_mask of shape [{}, {}]: got {}", n, seen, format_ints(padding.sizes()));
    padding = padding.reshape({n, 1, 1, seen}).expand({-1, num_heads, -1, -1}).reshape({count, 1, seen});
    mask = mask.defined() ? mask + padding : padding;
  }
  if (!training) dropout_p = 0;
  const auto projected = [&](const Tensor& t) {
    const Tensor out = tapegrad::linear(t, w.out_proj_weight, w.out_proj_bias);
    return batched ? out : out.squeeze(IntSpan{1});
  };
  if (!need_weights) {
    if (mask.defined()) mask = mask.size(0) == 1 ? mask.unsqueeze(0) : mask.reshape({n, num_heads, mask.size(1), seen});
    for (Tensor* t : {&q, &k, &v}) *t = t->reshape({n, num_heads, t->size(1), head});
    const Tensor out = tapegrad::scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal);
    return {projected(out.permute({2, 0, 1, 3}).reshape({length, n, width})), Tensor()};
  }
  const Tensor scaled = q * std::sqrt(1.0 / static_cast<double>(head));
  const Tensor turned = k.transpose(-2, -1);
  Tensor weights = mask.defined() ? tapegrad::baddbmm(mask, scaled, turned) : tapegrad::bmm(scaled, turned);
  weights = weights.softmax(-1);
  if (dropout_p > 0) weights = tapegrad::dropout(weights, dropout_p);
  const Tensor out = projected(tapegrad::bmm(weights, v).transpose(0, 1).reshape({length, n, width}));
  weights = weights.reshape({n, num_heads, length, seen});
  if (average_attn_weights) weights = weights.mean(IntSpan{1});
  return {out, batched ? weights : weights.squeeze(IntSpan{0})};
}

MultiheadAttentionImpl::MultiheadAttentionImpl(MultiheadAttentionOptions given) : options(std::move(given)) {
  const int64_t e = options.embed_dim(), heads = options.num_heads();
  TG_CHECK(e > 0 && heads > 0, Value,
           "MultiheadAttention: embed_dim and num_heads must be greater than 0: got {} and {}", e, heads);
  TG_CHECK(e % heads == 0, Value, "MultiheadAttention: embed_dim must be divisible by num_heads: got {} and {}", e,
           heads);
  const int64_t kdim = options.kdim().value_or(e), vdim = options.vdim().value_or(e);
  const bool together = kdim == e && vdim == e;
  const auto parameter = [&](const char* name, bool there, IntSpan shape) {
    return register_parameter(name, there ? tapegrad::empty(shape) : Tensor());
  };
  in_proj_weight = parameter("in_proj_weight", together, {3 * e, e});
  q_proj_weight = parameter("q_proj_weight", !together, {e, e});
  k_proj_weight = parameter("k_proj_weight", !together, {e, kdim});
  v_proj_weight = parameter("v_proj_weight", !together, {e, vdim});
  in_proj_bias = parameter("in_proj_bias", options.bias(), {3 * e});
  bias_k = parameter("bias_k", options.add_bias_kv(), {1, 1, e});
  bias_v = parameter("bias_v", options.add_bias_kv(), {1, 1, e});
  out_proj = register_module("out_proj", Linear(e, e, options.bias()));
  reset_parameters();
}

void MultiheadAttentionImpl::reset_parameters() {
  for (const Tensor* weight : {&in_proj_weight, &q_proj_weight, &k_proj_weight, &v_proj_weight})
    if (weight->defined()) init::xavier_uniform_(*weight);
  if (in_proj_bias.defined()) {
    init::zeros_(in_proj_bias);
    init::zeros_(out_proj->bias);
  }
  for (const Tensor* bias : {&bias_k, &bias_v})
    if (bias->defined()) init::xavier_normal_(*bias);
}

std::tuple<Tensor, Tensor> MultiheadAttentionImpl::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                           const Tensor& key_padding_mask, bool need_weights,
                                                           const Tensor& attn_mask, bool average_attn_weights,
                                                           bool is_causal) {
  const bool turn = options.batch_first() && query.dim() == 3;
  Tensor q = query, k = key, v = value;
  if (turn) {
    q = query.transpose(1, 0);
    k = key.is_same(query) ? q : key.transpose(1, 0);
    v = value.is_same(key) ? k : value.transpose(1, 0);
  }
  const AttentionWeights weights{in_proj_weight, q_proj_weight, k_proj_weight,    v_proj_weight, in_proj_bias,
                                 bias_k,         bias_v,        out_proj->weight, out_proj->bias};
  auto [out, attention] = multi_head_attention_forward(
      q, k, v, options.embed_dim(), options.num_heads(), weights, options.add_zero_attn(), options.dropout(),
      is_training(), key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal);
  return {turn ? out.transpose(1, 0) : out, attention};
}

}  // namespace tapegrad::nn
