// The transformer (Vaswani et al., 2017): layers of encoder and decoder, stacks of them, and both together.
//
// Tensors are (L, N, E), (N, L, E) with batch_first, or (L, E); masks as those of MultiheadAttention. Stacks hold
// copies of the layer that they are given, under layers.0, layers.1, ... If is_causal is absent, it is detected from
// the mask.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tapegrad/nn/containers.h"
#include "tapegrad/nn/layers/attention.h"
#include "tapegrad/nn/sequential.h"

namespace tapegrad::nn {

// The activation between the two linear layers: "relu", "gelu" (others raise Runtime) or a function.
class TG_API Activation {
 public:
  Activation(const char* name) : Activation(std::string(name)) {}
  Activation(const std::string& name);
  template <std::invocable<const Tensor&> F>
  Activation(F f) : call_(std::move(f)) {}
  Tensor operator()(const Tensor& x) const { return call_(x); }

 private:
  std::function<Tensor(const Tensor&)> call_;
};

template <class Self>
class TransformerLayerOptions {
 public:
  explicit TransformerLayerOptions(int64_t d_model, int64_t nhead, int64_t dim_feedforward = 2048, double dropout = 0.1,
                                   Activation activation = "relu", double layer_norm_eps = 1e-5,
                                   bool batch_first = false, bool norm_first = false, bool bias = true)
      : activation_(std::move(activation)) {
    std::tie(d_model_, nhead_, dim_feedforward_, dropout_, layer_norm_eps_, batch_first_, norm_first_, bias_) =
        std::tuple(d_model, nhead, dim_feedforward, dropout, layer_norm_eps, batch_first, norm_first, bias);
  }
  TG_OPTION(Self, int64_t, d_model);
  TG_OPTION(Self, int64_t, nhead);
  TG_OPTION(Self, int64_t, dim_feedforward);
  TG_OPTION(Self, double, dropout);
  TG_OPTION(Self, Activation, activation);
  TG_OPTION(Self, double, layer_norm_eps);
  TG_OPTION(Self, bool, batch_first);
  TG_OPTION(Self, bool, norm_first);
  TG_OPTION(Self, bool, bias);
};

class TransformerEncoderLayerOptions : public TransformerLayerOptions<TransformerEncoderLayerOptions> {
 public:
  using TransformerLayerOptions::TransformerLayerOptions;
};
class TransformerDecoderLayerOptions : public TransformerLayerOptions<TransformerDecoderLayerOptions> {
 public:
  using TransformerLayerOptions::TransformerLayerOptions;
};

// The parts of both kinds of layer.
class TG_API TransformerLayerImpl : public Module {
 public:
  MultiheadAttention self_attn{nullptr};
  Linear linear1{nullptr};
  Dropout dropout{nullptr};
  Linear linear2{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr};
  Dropout dropout1{nullptr}, dropout2{nullptr};

 protected:
  template <class Options>
  void make_parts(const Options& o, bool of_decoder);

  MultiheadAttention multihead_attn{nullptr};
  LayerNorm norm3{nullptr};
  Dropout dropout3{nullptr};
};

// Self-attention and a network of two linear layers, each with a residual connection and a layer normalisation.
class TG_API TransformerEncoderLayerImpl : public TransformerLayerImpl {
 public:
  explicit TransformerEncoderLayerImpl(TransformerEncoderLayerOptions options);
  virtual Tensor forward(const Tensor& src, const Tensor& src_mask = {}, const Tensor& src_key_padding_mask = {},
                         bool is_causal = false);
  // A layer of the same options and values.
  virtual std::shared_ptr<TransformerEncoderLayerImpl> clone() const;
  std::string type_name() const override { return "TransformerEncoderLayer"; }

  TransformerEncoderLayerOptions options;

 private:
  Tensor attend(const Tensor& x, const Tensor& mask, const Tensor& padding, bool is_causal);
  Tensor feed_forward(const Tensor& x);
};
TG_MODULE_OF_OPTIONS(TransformerEncoderLayer);

// Self-attention, attention to the encoder's result, and a network of two linear layers, each with a residual
// connection and a layer normalisation.
class TG_API TransformerDecoderLayerImpl : public TransformerLayerImpl {
 public:
  explicit TransformerDecoderLayerImpl(TransformerDecoderLayerOptions options);
  virtual Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {},
                         const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
                         const Tensor& memory_key_padding_mask = {}, bool tgt_is_causal = false,
                         bool memory_is_causal = false);
  virtual std::shared_ptr<TransformerDecoderLayerImpl> clone() const;
  std::string type_name() const override { return "TransformerDecoderLayer"; }

  TransformerDecoderLayerOptions options;
  using TransformerLayerImpl::dropout3;
  using TransformerLayerImpl::multihead_attn;
  using TransformerLayerImpl::norm3;

 private:
  Tensor feed_forward(const Tensor& x);
};
TG_MODULE_OF_OPTIONS(TransformerDecoderLayer);

// num_layers copies of a layer, and a normalisation of the result where one is given.
class TG_API TransformerStackImpl : public Module {
 public:
  ModuleList layers;

 protected:
  TransformerStackImpl(ModuleList copies, UnaryCall norm);
  UnaryCall norm_;
};

class TG_API TransformerEncoderImpl : public TransformerStackImpl {
 public:
  TransformerEncoderImpl(const TransformerEncoderLayer& encoder_layer, int64_t num_layers, UnaryCall norm = {});
  Tensor forward(const Tensor& src, const Tensor& mask = {}, const Tensor& src_key_padding_mask = {},
                 std::optional<bool> is_causal = {});
  std::string type_name() const override { return "TransformerEncoder"; }
};
TG_MODULE(TransformerEncoder);

class TG_API TransformerDecoderImpl : public TransformerStackImpl {
 public:
  TransformerDecoderImpl(const TransformerDecoderLayer& decoder_layer, int64_t num_layers, UnaryCall norm = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {}, const Tensor& memory_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {},
                 std::optional<bool> tgt_is_causal = {}, bool memory_is_causal = false);
  std::string type_name() const override { return "TransformerDecoder"; }
};
TG_MODULE(TransformerDecoder);

class TransformerOptions : public TransformerLayerOptions<TransformerOptions> {
 public:
  explicit TransformerOptions(int64_t d_model = 512, int64_t nhead = 8, int64_t num_encoder_layers = 6,
                              int64_t num_decoder_layers = 6, int64_t dim_feedforward = 2048, double dropout = 0.1,
                              Activation activation = "relu", TransformerEncoder custom_encoder = nullptr,
                              TransformerDecoder custom_decoder = nullptr, double layer_norm_eps = 1e-5,
                              bool batch_first = false, bool norm_first = false, bool bias = true)
      : TransformerLayerOptions(d_model, nhead, dim_feedforward, dropout, std::move(activation), layer_norm_eps,
                                batch_first, norm_first, bias),
        num_encoder_layers_(num_encoder_layers),
        num_decoder_layers_(num_decoder_layers),
        custom_encoder_(std::move(custom_encoder)),
        custom_decoder_(std::move(custom_decoder)) {}
  TG_OPTION(TransformerOptions, int64_t, num_encoder_layers);
  TG_OPTION(TransformerOptions, int64_t, num_decoder_layers);
  TG_OPTION(TransformerOptions, TransformerEncoder, custom_encoder);  // taken as it is, where not empty
  TG_OPTION(TransformerOptions, TransformerDecoder, custom_decoder);
};

class TG_API TransformerImpl : public Module {
 public:
  explicit TransformerImpl(TransformerOptions options);
  void reset_parameters();  // Xavier's, of all that have more than one dimension
  // The decoder's result, of tgt's shape.
  Tensor forward(const Tensor& src, const Tensor& tgt, const Tensor& src_mask = {}, const Tensor& tgt_mask = {},
                 const Tensor& memory_mask = {}, const Tensor& src_key_padding_mask = {},
                 const Tensor& tgt_key_padding_mask = {}, const Tensor& memory_key_padding_mask = {},
                 std::optional<bool> src_is_causal = {}, std::optional<bool> tgt_is_causal = {},
                 bool memory_is_causal = false);
  // -inf above the diagonal, zero elsewhere: a position does not attend to later ones.
  static Tensor generate_square_subsequent_mask(int64_t size);
  std::string type_name() const override { return "Transformer"; }

  TransformerOptions options;
  TransformerEncoder encoder;
  TransformerDecoder decoder;
};
class Transformer : public ModuleHolder<TransformerImpl> {
 public:
  using ModuleHolder<TransformerImpl>::ModuleHolder;
  explicit Transformer(TransformerOptions options)
      : ModuleHolder(std::make_shared<TransformerImpl>(std::move(options))) {}
  explicit Transformer(int64_t d_model = 512, int64_t nhead = 8, int64_t num_encoder_layers = 6,
                       int64_t num_decoder_layers = 6, int64_t dim_feedforward = 2048, double dropout = 0.1,
                       Activation activation = "relu")
      : Transformer(TransformerOptions(d_model, nhead, num_encoder_layers, num_decoder_layers, dim_feedforward, dropout,
                                       std::move(activation))) {}
  static Tensor generate_square_subsequent_mask(int64_t size) {
    return TransformerImpl::generate_square_subsequent_mask(size);
  }
};

}  // namespace tapegrad::nn
