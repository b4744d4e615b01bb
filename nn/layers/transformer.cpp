#include "tapegrad/nn/layers/transformer.h"

#include <limits>

#include "tapegrad/aten/functions_activation.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/nn/init.h"

namespace tapegrad::nn {
namespace {

// Whether the mask is the causal one; looked up in the mask where the caller does not say.
bool is_causal_mask(const Tensor& mask, std::optional<bool> is_causal, const Tensor& x, bool batch_first) {
  if (is_causal || !mask.defined()) return is_causal.value_or(false);
  const int64_t size = x.dim() == 2 || !batch_first ? x.size(0) : x.size(1);
  if (mask.sizes() != (IntSpan{size, size})) return false;
  const Tensor causal = TransformerImpl::generate_square_subsequent_mask(size).to(mask.dtype(), mask.device());
  return tapegrad::equal(mask, causal);
}

template <class Layer>
ModuleList copies(const Layer& layer, int64_t count) {
  TG_CHECK(count >= 0, Value, "transformer: expected a number of layers that is not negative: got {}", count);
  ModuleList list;
  for (int64_t i = 0; i < count; ++i) list->push_back(std::shared_ptr<Module>(layer->clone()));
  return list;
}

template <class Options>
MultiheadAttention attention_of(const Options& o) {
  return MultiheadAttention(
      MultiheadAttentionOptions(o.d_model(), o.nhead(), o.dropout(), o.bias()).batch_first(o.batch_first()));
}
template <class Options>
LayerNorm norm_of(const Options& o) {
  return LayerNorm(o.d_model(), o.layer_norm_eps(), true, o.bias());
}

template <class Layer>
std::shared_ptr<Layer> clone_of(const Layer& layer) {
  const init::SkipGuard skip;
  auto copy = std::make_shared<Layer>(layer.options);
  copy->copy_from(layer);
  return copy;
}

}  // namespace

Activation::Activation(const std::string& name) {
  TG_CHECK(name == "relu" || name == "gelu", Runtime, "transformer: activation should be relu or gelu: got \"{}\"",
           name);
  if (name == "relu")
    call_ = [](const Tensor& x) { return tapegrad::relu(x); };
  else
    call_ = [](const Tensor& x) { return tapegrad::gelu(x); };
}

template <class Options>
void TransformerLayerImpl::make_parts(const Options& o, bool of_decoder) {
  self_attn = register_module("self_attn", attention_of(o));
  if (of_decoder) multihead_attn = register_module("multihead_attn", attention_of(o));
  linear1 = register_module("linear1", Linear(o.d_model(), o.dim_feedforward(), o.bias()));
  dropout = register_module("dropout", Dropout(o.dropout()));
  linear2 = register_module("linear2", Linear(o.dim_feedforward(), o.d_model(), o.bias()));
  norm1 = register_module("norm1", norm_of(o));
  norm2 = register_module("norm2", norm_of(o));
  if (of_decoder) norm3 = register_module("norm3", norm_of(o));
  dropout1 = register_module("dropout1", Dropout(o.dropout()));
  dropout2 = register_module("dropout2", Dropout(o.dropout()));
  if (of_decoder) dropout3 = register_module("dropout3", Dropout(o.dropout()));
}

TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(TransformerEncoderLayerOptions given)
    : options(std::move(given)) {
  make_parts(options, false);
}

std::shared_ptr<TransformerEncoderLayerImpl> TransformerEncoderLayerImpl::clone() const { return clone_of(*this); }

Tensor TransformerEncoderLayerImpl::forward(const Tensor& src, const Tensor& src_mask,
                                            const Tensor& src_key_padding_mask, bool is_causal) {
  const Tensor padding = canonical_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype());
  const Tensor mask = canonical_mask(src_mask, "src_mask", src.dtype());
  if (options.norm_first()) {
    const Tensor x = src + attend(norm1(src), mask, padding, is_causal);
    return x + feed_forward(norm2(x));
  }
  const Tensor x = norm1(src + attend(src, mask, padding, is_causal));
  return norm2(x + feed_forward(x));
}

Tensor TransformerEncoderLayerImpl::attend(const Tensor& x, const Tensor& mask, const Tensor& padding, bool is_causal) {
  return dropout1(std::get<0>(self_attn(x, x, x, padding, false, mask, true, is_causal)));
}

Tensor TransformerEncoderLayerImpl::feed_forward(const Tensor& x) {
  return dropout2(linear2(dropout(options.activation()(linear1(x)))));
}

TransformerDecoderLayerImpl::TransformerDecoderLayerImpl(TransformerDecoderLayerOptions given)
    : options(std::move(given)) {
  make_parts(options, true);
}

std::shared_ptr<TransformerDecoderLayerImpl> TransformerDecoderLayerImpl::clone() const { return clone_of(*this); }

Tensor TransformerDecoderLayerImpl::forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask,
                                            const Tensor& memory_mask, const Tensor& tgt_key_padding_mask,
                                            const Tensor& memory_key_padding_mask, bool tgt_is_causal,
                                            bool memory_is_causal) {
  const auto own = [&](const Tensor& x) {
    return dropout1(std::get<0>(self_attn(x, x, x, tgt_key_padding_mask, false, tgt_mask, true, tgt_is_causal)));
  };
  const auto other = [&](const Tensor& x) {
    return dropout2(std::get<0>(
        multihead_attn(x, memory, memory, memory_key_padding_mask, false, memory_mask, true, memory_is_causal)));
  };
  Tensor x = tgt;
  if (options.norm_first()) {
    x = x + own(norm1(x));
    x = x + other(norm2(x));
    return x + feed_forward(norm3(x));
  }
  x = norm1(x + own(x));
  x = norm2(x + other(x));
  return norm3(x + feed_forward(x));
}

Tensor TransformerDecoderLayerImpl::feed_forward(const Tensor& x) {
  return dropout3(linear2(dropout(options.activation()(linear1(x)))));
}

TransformerStackImpl::TransformerStackImpl(ModuleList copies, UnaryCall norm)
    : layers(register_module("layers", std::move(copies))), norm_(std::move(norm)) {
  if (!norm_.is_empty()) add_module("norm", norm_.module());
}

TransformerEncoderImpl::TransformerEncoderImpl(const TransformerEncoderLayer& encoder_layer, int64_t num_layers,
                                               UnaryCall norm)
    : TransformerStackImpl(copies(encoder_layer, num_layers), std::move(norm)) {}

Tensor TransformerEncoderImpl::forward(const Tensor& src, const Tensor& given_mask, const Tensor& src_key_padding_mask,
                                       std::optional<bool> is_causal) {
  const Tensor padding = canonical_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype());
  const Tensor mask = canonical_mask(given_mask, "mask", src.dtype());
  Tensor x = src;
  for (size_t i = 0; i < layers->size(); ++i) {
    auto& layer = layers->at<TransformerEncoderLayerImpl>(i);
    if (i == 0) is_causal = is_causal_mask(mask, is_causal, src, layer.options.batch_first());
    x = layer.forward(x, mask, padding, *is_causal);
  }
  return norm_.is_empty() ? x : norm_(x);
}

TransformerDecoderImpl::TransformerDecoderImpl(const TransformerDecoderLayer& decoder_layer, int64_t num_layers,
                                               UnaryCall norm)
    : TransformerStackImpl(copies(decoder_layer, num_layers), std::move(norm)) {}

Tensor TransformerDecoderImpl::forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask,
                                       const Tensor& memory_mask, const Tensor& tgt_key_padding_mask,
                                       const Tensor& memory_key_padding_mask, std::optional<bool> tgt_is_causal,
                                       bool memory_is_causal) {
  Tensor x = tgt;
  for (size_t i = 0; i < layers->size(); ++i) {
    auto& layer = layers->at<TransformerDecoderLayerImpl>(i);
    if (i == 0) tgt_is_causal = is_causal_mask(tgt_mask, tgt_is_causal, tgt, layer.options.batch_first());
    x = layer.forward(x, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, *tgt_is_causal,
                      memory_is_causal);
  }
  return norm_.is_empty() ? x : norm_(x);
}

namespace {

TransformerEncoder encoder_of(const TransformerOptions& o) {
  if (!o.custom_encoder().is_empty()) return o.custom_encoder();
  const TransformerEncoderLayer layer(o.d_model(), o.nhead(), o.dim_feedforward(), o.dropout(), o.activation(),
                                      o.layer_norm_eps(), o.batch_first(), o.norm_first(), o.bias());
  return TransformerEncoder(layer, o.num_encoder_layers(), norm_of(o));
}

TransformerDecoder decoder_of(const TransformerOptions& o) {
  if (!o.custom_decoder().is_empty()) return o.custom_decoder();
  const TransformerDecoderLayer layer(o.d_model(), o.nhead(), o.dim_feedforward(), o.dropout(), o.activation(),
                                      o.layer_norm_eps(), o.batch_first(), o.norm_first(), o.bias());
  return TransformerDecoder(layer, o.num_decoder_layers(), norm_of(o));
}

}  // namespace

TransformerImpl::TransformerImpl(TransformerOptions given)
    : options(std::move(given)),
      encoder(register_module("encoder", encoder_of(options))),
      decoder(register_module("decoder", decoder_of(options))) {
  reset_parameters();
}

void TransformerImpl::reset_parameters() {
  for (const Tensor& p : parameters())
    if (p.dim() > 1) init::xavier_uniform_(p);
}

Tensor TransformerImpl::forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask, const Tensor& tgt_mask,
                                const Tensor& memory_mask, const Tensor& src_key_padding_mask,
                                const Tensor& tgt_key_padding_mask, const Tensor& memory_key_padding_mask,
                                std::optional<bool> src_is_causal, std::optional<bool> tgt_is_causal,
                                bool memory_is_causal) {
  const int64_t batch = options.batch_first() ? 0 : 1, d_model = options.d_model();
  TG_CHECK(src.dim() == tgt.dim() && (src.dim() != 3 || src.size(batch) == tgt.size(batch)), Runtime,
           "Transformer: the batch number of src and tgt must be equal: got shapes {} and {}", format_ints(src.sizes()),
           format_ints(tgt.sizes()));
  TG_CHECK(src.size(-1) == d_model && tgt.size(-1) == d_model, Runtime,
           "Transformer: the feature number of src and tgt must be equal to d_model, which is {}: got {} and {}",
           d_model, src.size(-1), tgt.size(-1));
  const Tensor memory = encoder(src, src_mask, src_key_padding_mask, src_is_causal);
  return decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
                 memory_is_causal);
}

Tensor TransformerImpl::generate_square_subsequent_mask(int64_t size) {
  return tapegrad::full({size, size}, -std::numeric_limits<double>::infinity()).triu(1);
}

}  // namespace tapegrad::nn
