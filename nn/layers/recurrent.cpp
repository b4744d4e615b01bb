#include "tapegrad/nn/layers/recurrent.h"

#include <cmath>

#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_rnn.h"
#include "tapegrad/nn/init.h"
#include "tapegrad/nn/layers/layer_support.h"

namespace tapegrad::nn {
namespace {

Tensor permuted(const Tensor& t, const Tensor& permutation) {
  return permutation.defined() ? t.index_select(1, permutation) : t;
}

}  // namespace

RNNBaseImpl::RNNBaseImpl(Mode mode, const Sizes& s) : mode_(mode), sizes_(s) {
  TG_CHECK(s.dropout >= 0 && s.dropout <= 1, Value, "recurrent layer: dropout should be in the range [0, 1]: got {}",
           s.dropout);
  TG_CHECK(s.input_size > 0 && s.hidden_size > 0 && s.num_layers > 0, Value,
           "recurrent layer: input_size, hidden_size and num_layers must be greater than zero: got {}, {} and {}",
           s.input_size, s.hidden_size, s.num_layers);
  TG_CHECK(s.proj_size >= 0 && s.proj_size < s.hidden_size, Value,
           "recurrent layer: proj_size has to be smaller than hidden_size, zero for no projection: got {} and {}",
           s.proj_size, s.hidden_size);
  const int64_t chunks = mode == Mode::lstm ? 4 : mode == Mode::gru ? 3 : 1;
  const int64_t gates = chunks * s.hidden_size, width = s.proj_size ? s.proj_size : s.hidden_size;
  const int64_t directions = s.bidirectional ? 2 : 1;
  for (int64_t layer = 0; layer < s.num_layers; ++layer)
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string ending = "_l" + std::to_string(layer) + (direction ? "_reverse" : "");
      std::vector<std::string>& names = names_.emplace_back();
      const auto add = [&](const char* kind, IntSpan shape) {
        names.push_back(kind + ending);
        weights_.push_back(register_parameter(names.back(), tapegrad::empty(shape)));
      };
      add("weight_ih", {gates, layer == 0 ? s.input_size : width * directions});
      add("weight_hh", {gates, width});
      if (s.bias) {
        add("bias_ih", {gates});
        add("bias_hh", {gates});
      }
      if (s.proj_size) add("weight_hr", {s.proj_size, s.hidden_size});
    }
  reset_parameters();
}

void RNNBaseImpl::reset_parameters() {
  const double bound = 1.0 / std::sqrt(static_cast<double>(sizes_.hidden_size));
  for (const Tensor& weight : weights_) init::uniform_(weight, -bound, bound);
}

std::string RNNBaseImpl::extra_repr() const {
  std::vector<std::string> parts{shown(sizes_.input_size), shown(sizes_.hidden_size)};
  const auto add = [&](const char* name, auto value, auto usual) {
    if (value != usual) parts.push_back(std::string(name) + "=" + shown(value));
  };
  add("proj_size", sizes_.proj_size, 0);
  add("num_layers", sizes_.num_layers, 1);
  add("bias", sizes_.bias, true);
  add("batch_first", sizes_.batch_first, false);
  add("dropout", sizes_.dropout, 0.0);
  add("bidirectional", sizes_.bidirectional, false);
  return joined(parts);
}

void RNNBaseImpl::check_input(const Tensor& input, bool packed) const {
  const DType dtype = weights_[0].dtype();
  TG_CHECK(input.dtype() == dtype, Value, "{}: the dtype of the input does not match that of the weights: {} and {}",
           type_name(), input.dtype(), dtype);
  TG_CHECK(input.dim() == (packed ? 2 : 3), Runtime, "{}: input must have {} dimensions: got {}", type_name(),
           packed ? 2 : 3, input.dim());
  TG_CHECK(input.size(-1) == sizes_.input_size, Runtime,
           "{}: input.size(-1) must be equal to input_size: expected {}: got {}", type_name(), sizes_.input_size,
           input.size(-1));
}

Tensor RNNBaseImpl::run(const Tensor& input, const Tensor& batch_sizes, States& states) const {
  check_input(input, batch_sizes.defined());
  const int64_t n =
      batch_sizes.defined() ? batch_sizes.select(0, 0).item<int64_t>() : input.size(sizes_.batch_first ? 0 : 1);
  const int64_t width = sizes_.proj_size ? sizes_.proj_size : sizes_.hidden_size;
  if (states.empty()) {
    states.push_back(tapegrad::zeros({num_states(), n, width}, input.dtype(), input.device()));
    if (mode_ == Mode::lstm)
      states.push_back(width == sizes_.hidden_size
                           ? states[0]
                           : tapegrad::zeros({num_states(), n, sizes_.hidden_size}, input.dtype(), input.device()));
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const DimVector expected{num_states(), n, i == 0 ? width : sizes_.hidden_size};
    TG_CHECK(states[i].sizes() == IntSpan(expected), Runtime, "{}: expected hidden{} size {}: got {}", type_name(),
             states.size() == 1 ? "" : "[" + std::to_string(i) + "]", format_ints(expected),
             format_ints(states[i].sizes()));
  }
  const auto& [in, hidden, layers, bias, batch_first, dropout, both, proj] = sizes_;
  const bool train = is_training();
  if (mode_ == Mode::lstm) {
    auto [output, h, c] =
        batch_sizes.defined()
            ? tapegrad::_lstm_data(input, batch_sizes, states, weights_, bias, layers, dropout, train, both)
            : tapegrad::_lstm_input(input, states, weights_, bias, layers, dropout, train, both, batch_first);
    states = {h, c};
    return output;
  }
  const auto one = [&](auto padded, auto packed) {
    auto [output, h] = batch_sizes.defined()
                           ? packed(input, batch_sizes, states[0], weights_, bias, layers, dropout, train, both)
                           : padded(input, states[0], weights_, bias, layers, dropout, train, both, batch_first);
    states = {h};
    return output;
  };
  if (mode_ == Mode::gru) return one(tapegrad::_gru_input, tapegrad::_gru_data);
  if (mode_ == Mode::rnn_tanh) return one(tapegrad::_rnn_tanh_input, tapegrad::_rnn_tanh_data);
  return one(tapegrad::_rnn_relu_input, tapegrad::_rnn_relu_data);
}

Tensor RNNBaseImpl::run(const Tensor& input, States& states) const {
  TG_CHECK(input.dim() == 2 || input.dim() == 3, Value, "{}: expected input to be 2D or 3D: got {}D", type_name(),
           input.dim());
  const bool batched = input.dim() == 3;
  for (Tensor& state : states) {
    TG_CHECK(state.dim() == input.dim(), Runtime, "{}: for {} input, the hidden state should also be {}-D: got {}-D",
             type_name(), batched ? "batched 3-D" : "unbatched 2-D", input.dim(), state.dim());
    if (!batched) state = state.unsqueeze(1);
  }
  if (batched) return run(input, {}, states);
  const int64_t batch = sizes_.batch_first ? 0 : 1;
  const Tensor output = run(input.unsqueeze(batch), {}, states);
  for (Tensor& state : states) state = state.squeeze(IntSpan{1});
  return output.squeeze(IntSpan{batch});
}

PackedSequence RNNBaseImpl::run(const PackedSequence& input, States& states) const {
  for (Tensor& state : states) state = permuted(state, input.sorted_indices);
  const Tensor output = run(input.data, input.batch_sizes, states);
  for (Tensor& state : states) state = permuted(state, input.unsorted_indices);
  return {output, input.batch_sizes, input.sorted_indices, input.unsorted_indices};
}

namespace {

std::vector<Tensor> as_states(const Tensor& hx) { return hx.defined() ? std::vector{hx} : std::vector<Tensor>(); }
std::vector<Tensor> as_states(const std::optional<State>& hx) {
  return hx ? std::vector{std::get<0>(*hx), std::get<1>(*hx)} : std::vector<Tensor>();
}

void take(const std::vector<Tensor>& from, Tensor& hx) { hx = from[0]; }
void take(const std::vector<Tensor>& from, State& hx) { hx = {from[0], from[1]}; }

const std::string& checked(const std::string& nonlinearity) {
  TG_CHECK(nonlinearity == "tanh" || nonlinearity == "relu", Value,
           "RNN: unknown nonlinearity '{}': select from 'tanh' or 'relu'", nonlinearity);
  return nonlinearity;
}

}  // namespace

template <class Input, class Given>
auto RNNBaseImpl::run_from(const Input& input, const Given& hx) const {
  States states = as_states(hx);
  std::tuple<Input, std::conditional_t<std::is_same_v<Given, Tensor>, Tensor, State>> result;
  std::get<0>(result) = run(input, states);
  take(states, std::get<1>(result));
  return result;
}

RNNImpl::RNNImpl(RNNOptions o)
    : OneStateImpl(checked(o.nonlinearity()) == "tanh" ? Mode::rnn_tanh : Mode::rnn_relu, sizes_of(o)),
      options(std::move(o)) {}
GRUImpl::GRUImpl(GRUOptions o) : OneStateImpl(Mode::gru, sizes_of(o)), options(std::move(o)) {}
LSTMImpl::LSTMImpl(LSTMOptions o) : RNNBaseImpl(Mode::lstm, sizes_of(o, o.proj_size())), options(std::move(o)) {}

std::tuple<Tensor, Tensor> OneStateImpl::forward(const Tensor& input, const Tensor& hx) { return run_from(input, hx); }
std::tuple<PackedSequence, Tensor> OneStateImpl::forward(const PackedSequence& input, const Tensor& hx) {
  return run_from(input, hx);
}

std::tuple<Tensor, State> LSTMImpl::forward(const Tensor& input, const std::optional<State>& hx) {
  return run_from(input, hx);
}
std::tuple<PackedSequence, State> LSTMImpl::forward(const PackedSequence& input, const std::optional<State>& hx) {
  return run_from(input, hx);
}

}  // namespace tapegrad::nn
