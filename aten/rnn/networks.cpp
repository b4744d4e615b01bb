// Recurrent networks of several layers and two directions, over sequences of one length or packed ones.
#include <algorithm>

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_rnn.h"
#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/aten/rnn/network_library.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {

namespace rnn {

namespace {

bool has_samples(const Tensor& t) {
  for (Tensor at = t; batch::is_batched(at); at = batch::impl_of(at).physical())
    if (batch::impl_of(at).has_dim()) return true;
  return false;
}

// Whether gradients of weights differ between samples of a vmap, as the weights themselves may: _rnn_layer and its
// gradient then run once per sample.
bool is_by_samples(const Tensor& input, const Tensor& hx, const LayerWeights& w) {
  const Tensor* weights[] = {&w.w_ih, &w.w_hh, &w.b_ih, &w.b_hh, &w.w_hr};
  const auto any = [&](auto&& f) {
    return std::any_of(std::begin(weights), std::end(weights), [&](auto* t) { return f(*t); });
  };
  return any(batch::is_batched) && (has_samples(input) || has_samples(hx) || any(has_samples));
}

// A layer of one step, of operators that take all samples at once. For more steps the kernel, once per sample, is
// quicker: 100 steps of four samples take it a tenth of the time.
LayerResult one_step(const Tensor& input, const Tensor& hx, const Tensor& cx, const LayerWeights& w, Cell cell) {
  const Tensor of_input = linear(input, w.w_ih, w.b_ih), of_state = linear(hx, w.w_hh, w.b_hh);
  if (cell == Cell::Lstm) {
    auto [h, c] = _lstm_gates(add(of_input, of_state), cx);
    if (w.w_hr.defined()) h = linear(h, w.w_hr);
    return {h, h, c};
  }
  const Tensor h = cell == Cell::Gru    ? _gru_gates(of_input, of_state, hx)
                   : cell == Cell::Tanh ? tanh(add(of_input, of_state))
                                        : relu(add(of_input, of_state));
  return {h, h, {}};
}

}  // namespace

LayerResult layer(const Tensor& input, const Tensor& hx, const Tensor& cx, const LayerWeights& w, IntSpan batch_sizes,
                  Cell cell, bool reverse) {
  const int64_t number = static_cast<int64_t>(cell);
  const bool lstm = cell == Cell::Lstm;
  if (TG_UNLIKELY(modes() & kModeBatch) && batch_sizes.size() == 1 && is_by_samples(input, hx, w))
    return one_step(input, hx, cx, w, cell);
  if (!is_half(input.dtype()) || takes_half(input.device())) {
    auto r = _rnn_layer(input, hx, cx, w.w_ih, w.w_hh, w.b_ih, w.b_hh, w.w_hr, batch_sizes, number, reverse);
    return {std::get<0>(r), std::get<1>(r), lstm ? std::get<2>(r) : Tensor()};
  }
  const DType dtype = input.dtype();
  const auto wide = [&](const Tensor& t, const char* name) {
    if (!t.defined()) return t;
    TG_CHECK(t.dtype() == dtype, Runtime, "rnn: {} must have the input's dtype {}: got {}", name, dtype, t.dtype());
    return to(t, DType::float32);
  };
  auto r = _rnn_layer(to(input, DType::float32), wide(hx, "the state"), wide(cx, "the state"),
                      wide(w.w_ih, "the weight"), wide(w.w_hh, "the weight"), wide(w.b_ih, "the bias"),
                      wide(w.b_hh, "the bias"), wide(w.w_hr, "the weight"), batch_sizes, number, reverse);
  return {to(std::get<0>(r), dtype), to(std::get<1>(r), dtype), lstm ? to(std::get<2>(r), dtype) : Tensor()};
}

LayerResult layers(const Tensor& input, const Tensor& hx, const Tensor& cx, std::span<const LayerWeights> weights,
                   IntSpan batch_sizes, Cell cell, bool bidirectional) {
  const bool lstm = cell == Cell::Lstm;
  const size_t directions = bidirectional ? 2 : 1;
  Tensor x = input;
  std::vector<Tensor> hy, cy;
  for (size_t first = 0; first < weights.size(); first += directions) {
    Tensor outputs[2];
    for (size_t d = 0; d < directions; ++d) {
      const int64_t at = static_cast<int64_t>(first + d);
      const LayerResult r = layer(x, select(hx, 0, at), lstm ? select(cx, 0, at) : Tensor(), weights[first + d],
                                  batch_sizes, cell, d == 1);
      outputs[d] = r.output;
      hy.push_back(r.hy);
      if (lstm) cy.push_back(r.cy);
    }
    x = bidirectional ? cat(TensorSpan(outputs, 2), -1) : outputs[0];
  }
  return {x, hy.size() == 1 ? unsqueeze(hy[0], 0) : stack(hy, 0),
          !lstm            ? Tensor()
          : cy.size() == 1 ? unsqueeze(cy[0], 0)
                           : stack(cy, 0)};
}

namespace {

LayerResult run(const Tensor& input, const Tensor& hx, const Tensor& cx, std::span<const LayerWeights> weights,
                IntSpan batch_sizes, Cell cell, bool bidirectional) {
  if (auto r = by_library(input, hx, cx, weights, batch_sizes, cell, bidirectional)) return std::move(*r);
  return layers(input, hx, cx, weights, batch_sizes, cell, bidirectional);
}

struct Options {
  const char* op;
  Cell cell;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train, bidirectional;
};

// input (rows of all steps, I); states (layers * directions, N, H).
LayerResult network(const Tensor& input, IntSpan batch_sizes, const Tensor& hx, const Tensor& cx, TensorSpan params,
                    const Options& o) {
  const bool lstm = o.cell == Cell::Lstm;
  const int64_t directions = o.bidirectional ? 2 : 1;
  TG_CHECK(o.num_layers > 0, Runtime, "{}: expected at least one layer: got {}", o.op, o.num_layers);
  TG_CHECK(o.dropout >= 0 && o.dropout <= 1, Runtime, "{}: dropout must be between 0 and 1: got {}", o.op, o.dropout);
  // Divided, not multiplied: the number of layers may be arbitrarily large.
  TG_CHECK(hx.ndim() == 3 && hx.size(0) % directions == 0 && hx.size(0) / directions == o.num_layers, Runtime,
           "{}: expected a state of {} layers in {}: got {}", o.op, o.num_layers,
           directions == 2 ? "both directions" : "one direction", format_ints(hx.sizes()));
  TG_CHECK(!lstm || (cx.ndim() == 3 && cx.size(0) == hx.size(0) && cx.size(1) == hx.size(1)), Runtime,
           "{}: h and c differ in size: got {} and {}", o.op, format_ints(hx.sizes()), format_ints(cx.sizes()));
  const bool projected = lstm && hx.size(2) != cx.size(2);
  const int64_t each = 2 + (o.has_biases ? 2 : 0) + (projected ? 1 : 0);
  TG_CHECK(static_cast<int64_t>(params.size()) == o.num_layers * directions * each, Runtime,
           "{}: expected {} weights for each of {} layers and directions: got {}", o.op, each,
           o.num_layers * directions, params.size());
  std::vector<LayerWeights> weights;
  for (const Tensor* p = params.data(); p != params.data() + params.size(); p += each) {
    LayerWeights& w = weights.emplace_back(LayerWeights{p[0], p[1], {}, {}, {}});
    if (o.has_biases) {
      w.b_ih = p[2];
      w.b_hh = p[3];
    }
    if (projected) w.w_hr = p[each - 1];
  }
  const std::span<const LayerWeights> all(weights);
  if (o.dropout == 0 || !o.train || o.num_layers == 1)
    return run(input, hx, cx, all, batch_sizes, o.cell, o.bidirectional);
  LayerResult r{input, {}, {}};
  std::vector<Tensor> hy, cy;
  for (int64_t l = 0; l < o.num_layers; ++l) {
    const int64_t first = l * directions;
    if (l > 0) r.output = dropout(r.output, o.dropout, true);
    r = run(r.output, narrow(hx, 0, first, directions), lstm ? narrow(cx, 0, first, directions) : Tensor(),
            all.subspan(static_cast<size_t>(first), static_cast<size_t>(directions)), batch_sizes, o.cell,
            o.bidirectional);
    hy.push_back(r.hy);
    if (lstm) cy.push_back(r.cy);
  }
  return {r.output, cat(hy, 0), lstm ? cat(cy, 0) : Tensor()};
}

LayerResult padded(const Tensor& input, const Tensor& hx, const Tensor& cx, TensorSpan params, const Options& o,
                   bool batch_first) {
  TG_CHECK(input.ndim() == 3, Runtime, "{}: expected input of 3 dimensions: got {}", o.op, format_ints(input.sizes()));
  const Tensor steps_first = batch_first ? transpose(input, 0, 1) : input;
  const int64_t steps = steps_first.size(0), n = steps_first.size(1);
  TG_CHECK(steps > 0, Runtime, "{}: expected sequence length to be larger than 0", o.op);
  TG_CHECK(hx.ndim() == 3 && hx.size(1) == n, Runtime, "{}: expected a state for {} sequences: got {}", o.op, n,
           format_ints(hx.sizes()));
  const std::vector<int64_t> sizes(static_cast<size_t>(steps), n);
  LayerResult r = network(reshape(steps_first, {steps * n, input.size(2)}), sizes, hx, cx, params, o);
  r.output = reshape(r.output, {steps, n, r.output.size(1)});
  if (batch_first) r.output = transpose(r.output, 0, 1);
  return r;
}

LayerResult packed(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, const Tensor& cx, TensorSpan params,
                   const Options& o) {
  TG_CHECK(data.ndim() == 2 && batch_sizes.ndim() == 1 && batch_sizes.dtype() == DType::int64, Runtime,
           "{}: expected packed data (rows, I) and batch sizes of dtype int64: got {} and {} {}", o.op,
           format_ints(data.sizes()), batch_sizes.dtype(), format_ints(batch_sizes.sizes()));
  TG_CHECK(batch_sizes.numel() > 0 && (batch_sizes.is_cpu() || batch_sizes.is_batched()), Runtime,
           "{}: expected batch sizes on the CPU", o.op);
  if (batch_sizes.is_batched()) batch::throw_needs_values(o.op);
  record::note_host_read(o.op);
  const Tensor dense = contiguous(batch_sizes);
  const IntSpan sizes(dense.data<int64_t>(), static_cast<size_t>(dense.numel()));
  return network(data, sizes, hx, cx, params, o);
}

void check_pair(const char* op, TensorSpan hx) {
  TG_CHECK(hx.size() == 2, Runtime, "{}: the state is the pair (h, c): got {} tensors", op, hx.size());
}

}  // namespace
}  // namespace rnn

namespace composite {

using rnn::Cell;

std::tuple<Tensor, Tensor, Tensor> lstm_input(const Tensor& input, TensorSpan hx, TensorSpan params, bool has_biases,
                                              int64_t num_layers, double dropout, bool train, bool bidirectional,
                                              bool batch_first) {
  rnn::check_pair("lstm", hx);
  rnn::LayerResult r =
      rnn::padded(input, hx[0], hx[1], params,
                  {"lstm", Cell::Lstm, has_biases, num_layers, dropout, train, bidirectional}, batch_first);
  return {r.output, r.hy, r.cy};
}

std::tuple<Tensor, Tensor, Tensor> lstm_data(const Tensor& data, const Tensor& batch_sizes, TensorSpan hx,
                                             TensorSpan params, bool has_biases, int64_t num_layers, double dropout,
                                             bool train, bool bidirectional) {
  rnn::check_pair("lstm", hx);
  rnn::LayerResult r = rnn::packed(data, batch_sizes, hx[0], hx[1], params,
                                   {"lstm", Cell::Lstm, has_biases, num_layers, dropout, train, bidirectional});
  return {r.output, r.hy, r.cy};
}

#define TG_NETWORK(name, kind)                                                                                         \
  std::tuple<Tensor, Tensor> name##_input(const Tensor& input, const Tensor& hx, TensorSpan params, bool has_biases,   \
                                          int64_t num_layers, double dropout, bool train, bool bidirectional,          \
                                          bool batch_first) {                                                          \
    rnn::LayerResult r =                                                                                               \
        rnn::padded(input, hx, {}, params, {#name, Cell::kind, has_biases, num_layers, dropout, train, bidirectional}, \
                    batch_first);                                                                                      \
    return {r.output, r.hy};                                                                                           \
  }                                                                                                                    \
  std::tuple<Tensor, Tensor> name##_data(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx,              \
                                         TensorSpan params, bool has_biases, int64_t num_layers, double dropout,       \
                                         bool train, bool bidirectional) {                                             \
    rnn::LayerResult r = rnn::packed(data, batch_sizes, hx, {}, params,                                                \
                                     {#name, Cell::kind, has_biases, num_layers, dropout, train, bidirectional});      \
    return {r.output, r.hy};                                                                                           \
  }
TG_NETWORK(gru, Gru)
TG_NETWORK(rnn_tanh, Tanh)
TG_NETWORK(rnn_relu, Relu)
#undef TG_NETWORK

}  // namespace composite
}  // namespace tapegrad
