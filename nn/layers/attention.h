// Attention of several heads with its projections (Vaswani et al., 2017).
#pragma once

#include <optional>
#include <tuple>

#include "tapegrad/nn/layers.h"

namespace tapegrad::nn {

class MultiheadAttentionOptions {
 public:
  explicit MultiheadAttentionOptions(int64_t embed_dim, int64_t num_heads, double dropout = 0, bool bias = true,
                                     bool add_bias_kv = false, bool add_zero_attn = false,
                                     std::optional<int64_t> kdim = {}, std::optional<int64_t> vdim = {},
                                     bool batch_first = false) {
    std::tie(embed_dim_, num_heads_, dropout_, bias_, add_bias_kv_, add_zero_attn_, kdim_, vdim_, batch_first_) =
        std::forward_as_tuple(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first);
  }
  TG_OPTION(MultiheadAttentionOptions, int64_t, embed_dim);
  TG_OPTION(MultiheadAttentionOptions, int64_t, num_heads);
  TG_OPTION(MultiheadAttentionOptions, double, dropout);
  TG_OPTION(MultiheadAttentionOptions, bool, bias);
  TG_OPTION(MultiheadAttentionOptions, bool, add_bias_kv);             // appends a learnt key and value
  TG_OPTION(MultiheadAttentionOptions, bool, add_zero_attn);           // appends a key and value of zeros
  TG_OPTION(MultiheadAttentionOptions, std::optional<int64_t>, kdim);  // features of the key, where not embed_dim
  TG_OPTION(MultiheadAttentionOptions, std::optional<int64_t>, vdim);  // features of the value, likewise
  TG_OPTION(MultiheadAttentionOptions, bool, batch_first);
};

// The weights, biases and scalar parameters of one attention; undefined tensors are absent.
struct AttentionWeights {
  Tensor in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight;  // the first, or the other three
  Tensor in_proj_bias, bias_k, bias_v, out_proj_weight, out_proj_bias;
};

// Attention of num_heads heads over query (L, N, E), key and value (S, N, E), or without N; returns the projected
// result and the weights (undefined unless need_weights).
//
// Masks: key_padding_mask (N, S), attn_mask (L, S) or (N num_heads, L, S); true, or -inf, hides a key. is_causal is a
// hint that attn_mask is the causal mask. Without need_weights the tiled kernel is used. Mismatched shapes raise Value
// or Runtime.
TG_API std::tuple<Tensor, Tensor> multi_head_attention_forward(
    const Tensor& query, const Tensor& key, const Tensor& value, int64_t embed_dim, int64_t num_heads,
    const AttentionWeights& weights, bool add_zero_attn, double dropout_p, bool training,
    const Tensor& key_padding_mask = {}, bool need_weights = true, const Tensor& attn_mask = {},
    bool average_attn_weights = true, bool is_causal = false);

// A mask as numbers to be added: a boolean one becomes zeros, and -inf where it is true. Undefined for none.
TG_API Tensor canonical_mask(const Tensor& mask, const char* name, DType dtype);

// Attention of num_heads heads over embed_dim features: tensors are (L, N, E), (N, L, E) with batch_first, or (L, E).
class TG_API MultiheadAttentionImpl : public Module {
 public:
  explicit MultiheadAttentionImpl(MultiheadAttentionOptions options);
  void reset_parameters();  // its own parameters; out_proj initialises itself
  // The result and the weights, (N, L, S), (N, heads, L, S) where they are not averaged.
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& key_padding_mask = {}, bool need_weights = true,
                                     const Tensor& attn_mask = {}, bool average_attn_weights = true,
                                     bool is_causal = false);
  std::string type_name() const override { return "MultiheadAttention"; }

  MultiheadAttentionOptions options;
  Tensor in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, bias_k, bias_v;
  Linear out_proj{nullptr};
};
TG_MODULE_OF_OPTIONS(MultiheadAttention);

}  // namespace tapegrad::nn
