// Recurrent networks: RNN, LSTM, GRU. A layer in one direction is one native kernel over all of its steps.
//
// Input (L, N, I), (N, L, I) with batch_first, (L, I), or a PackedSequence (nn/utils/rnn.h); a state is
// (layers * directions, N, H), or without N. The result is the last layer's output of every step and the last state of
// every layer and direction; without a state they start from zeros. Wrong shapes and dtypes raise Value or Runtime.
// Parameters are named as in Python: weight_ih_l0, weight_hh_l0, bias_ih_l0, ..., the backward direction with _reverse.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tapegrad/nn/module.h"
#include "tapegrad/nn/options.h"
#include "tapegrad/nn/state.h"
#include "tapegrad/nn/utils/rnn.h"

namespace tapegrad::nn {

using utils::PackedSequence;

template <class Self>
class RecurrentOptions {
 public:
  RecurrentOptions(int64_t input_size, int64_t hidden_size, int64_t num_layers, bool bias, bool batch_first,
                   double dropout, bool bidirectional) {
    std::tie(input_size_, hidden_size_, num_layers_, bias_, batch_first_, dropout_, bidirectional_) =
        std::forward_as_tuple(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional);
  }
  TG_OPTION(Self, int64_t, input_size);
  TG_OPTION(Self, int64_t, hidden_size);
  TG_OPTION(Self, int64_t, num_layers);
  TG_OPTION(Self, bool, bias);
  TG_OPTION(Self, bool, batch_first);
  TG_OPTION(Self, double, dropout);  // after every layer but the last, in training
  TG_OPTION(Self, bool, bidirectional);
};

class RNNOptions : public RecurrentOptions<RNNOptions> {
 public:
  explicit RNNOptions(int64_t input_size, int64_t hidden_size, int64_t num_layers = 1,
                      std::string nonlinearity = "tanh", bool bias = true, bool batch_first = false, double dropout = 0,
                      bool bidirectional = false)
      : RecurrentOptions(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional),
        nonlinearity_(std::move(nonlinearity)) {}
  TG_OPTION(RNNOptions, std::string, nonlinearity);  // "tanh" or "relu"
};

class GRUOptions : public RecurrentOptions<GRUOptions> {
 public:
  explicit GRUOptions(int64_t input_size, int64_t hidden_size, int64_t num_layers = 1, bool bias = true,
                      bool batch_first = false, double dropout = 0, bool bidirectional = false)
      : RecurrentOptions(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional) {}
};

class LSTMOptions : public RecurrentOptions<LSTMOptions> {
 public:
  explicit LSTMOptions(int64_t input_size, int64_t hidden_size, int64_t num_layers = 1, bool bias = true,
                       bool batch_first = false, double dropout = 0, bool bidirectional = false, int64_t proj_size = 0)
      : RecurrentOptions(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional),
        proj_size_(proj_size) {}
  TG_OPTION(LSTMOptions, int64_t, proj_size);  // features of the projected h; 0: not projected
};

// Parameters by layer and direction, and shared code of the three forward passes.
class TG_API RNNBaseImpl : public Module {
 public:
  void reset_parameters();  // uniform between -1 and 1 divided by the root of hidden_size
  const std::vector<Tensor>& flat_weights() const noexcept { return weights_; }
  // Names of the parameters, a list per layer and direction.
  const std::vector<std::vector<std::string>>& all_weights() const noexcept { return names_; }
  std::string extra_repr() const override;

 protected:
  enum class Mode { rnn_tanh, rnn_relu, gru, lstm };
  struct Sizes {
    int64_t input_size, hidden_size, num_layers;
    bool bias, batch_first;
    double dropout;
    bool bidirectional;
    int64_t proj_size;
  };
  using States = std::vector<Tensor>;  // h, or h and c

  RNNBaseImpl(Mode mode, const Sizes& sizes);
  template <class Options>
  static Sizes sizes_of(const Options& o, int64_t proj_size = 0) {
    return {o.input_size(),  o.hidden_size(), o.num_layers(),    o.bias(),
            o.batch_first(), o.dropout(),     o.bidirectional(), proj_size};
  }
  // `states` is empty where there are none; the new ones are left in it.
  Tensor run(const Tensor& input, States& states) const;
  PackedSequence run(const PackedSequence& input, States& states) const;
  // The result and the new state, from the given one, which may be absent.
  template <class Input, class Given>
  auto run_from(const Input& input, const Given& hx) const;

 private:
  Tensor run(const Tensor& input, const Tensor& batch_sizes, States& states) const;
  void check_input(const Tensor& input, bool packed) const;
  int64_t num_states() const { return sizes_.num_layers * (sizes_.bidirectional ? 2 : 1); }

  Mode mode_;
  Sizes sizes_;
  std::vector<Tensor> weights_;
  std::vector<std::vector<std::string>> names_;
};

// Networks whose state is one tensor.
class TG_API OneStateImpl : public RNNBaseImpl {
 public:
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& hx = {});
  std::tuple<PackedSequence, Tensor> forward(const PackedSequence& input, const Tensor& hx = {});

 protected:
  using RNNBaseImpl::RNNBaseImpl;
};

// Elman networks: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu.
class TG_API RNNImpl : public OneStateImpl {
 public:
  explicit RNNImpl(RNNOptions options);
  RNNOptions options;
};
TG_MODULE_OF_OPTIONS(RNN);

// Gated recurrent units (Cho et al., 2014).
class TG_API GRUImpl : public OneStateImpl {
 public:
  explicit GRUImpl(GRUOptions options);
  GRUOptions options;
};
TG_MODULE_OF_OPTIONS(GRU);

// Long short-term memory (Hochreiter and Schmidhuber, 1997, with forget gate; projections after Sak et al., 2014). The
// state is the pair (h, c).
class TG_API LSTMImpl : public RNNBaseImpl {
 public:
  explicit LSTMImpl(LSTMOptions options);
  std::tuple<Tensor, State> forward(const Tensor& input, const std::optional<State>& hx = {});
  std::tuple<PackedSequence, State> forward(const PackedSequence& input, const std::optional<State>& hx = {});
  LSTMOptions options;
};
TG_MODULE_OF_OPTIONS(LSTM);

}  // namespace tapegrad::nn
