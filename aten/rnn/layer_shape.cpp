// Checks and results of a recurrent layer, and of a network as one call.
#include "tapegrad/aten/kernels_rnn.h"
#include "tapegrad/aten/rnn/network_library.h"
#include "tapegrad/c10/tensor/checked_int.h"

namespace tapegrad {
namespace {

using rnn::Cell;
using rnn::NetworkSizes;

TensorSpec spec(const Tensor& like, DimVector sizes) { return {std::move(sizes), like.dtype(), like.device(), {}}; }
// Of what is kept for the gradient, as it was computed.
TensorSpec kept_spec(const Tensor& like, DimVector sizes) {
  return {std::move(sizes), compute_dtype(like.dtype()), like.device(), {}};
}
int64_t kept_width(Cell cell, int64_t h, const Tensor& like) {
  return rnn::kept_width(cell, h, element_size(compute_dtype(like.dtype())));
}

void check_size(const Tensor& t, IntSpan expected, DType dtype, const char* name) {
  TG_CHECK(t.sizes() == expected, Runtime, "rnn: {} must have shape {}: got {}", name, format_ints(expected),
           format_ints(t.sizes()));
  TG_CHECK(t.dtype() == dtype, Runtime, "rnn: {} must have the input's dtype {}: got {}", name, dtype, t.dtype());
}

void check_batch_sizes(IntSpan batch_sizes, int64_t n, int64_t rows) {
  int64_t total = 0, before = n;
  for (int64_t size : batch_sizes) {
    TG_CHECK(size >= 0 && size <= before, Runtime,
             "rnn: batch sizes must not grow, nor be larger than the {} sequences: got {}", n,
             format_ints(batch_sizes));
    total += size;
    before = size;
  }
  TG_CHECK(!batch_sizes.empty() && batch_sizes[0] == n && total == rows, Runtime,
           "rnn: batch sizes {} do not fit {} sequences with {} rows of input", format_ints(batch_sizes), n, rows);
}

void check_layer(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
                 const Tensor& w_hr, IntSpan batch_sizes, int64_t number) {
  TG_CHECK(number >= 0 && number <= 3, Runtime, "rnn: unknown cell {}", number);
  const Cell cell = static_cast<Cell>(number);
  const DType dtype = input.dtype();
  TG_CHECK(is_floating_point(dtype) && (!is_half(dtype) || rnn::takes_half(input.device())), Runtime,
           "rnn: expected float32 or float64 input: got {}", dtype);
  TG_CHECK(input.ndim() == 2 && hx.ndim() == 2 && w_ih.ndim() == 2 && w_hh.ndim() == 2, Runtime,
           "rnn: expected matrices: got input {}, state {} and weights {} and {}", format_ints(input.sizes()),
           format_ints(hx.sizes()), format_ints(w_ih.sizes()), format_ints(w_hh.sizes()));
  const int64_t gates = rnn::gate_count(cell), n = hx.size(0), h = w_hh.size(0) / gates;
  check_size(w_ih, {gates * h, input.size(1)}, dtype, "the input's weight");
  check_size(w_hh, {gates * h, hx.size(1)}, dtype, "the state's weight");
  check_size(hx, {n, w_hr.defined() ? hx.size(1) : h}, dtype, "the state");
  TG_CHECK(cx.defined() == (cell == Cell::Lstm), Runtime, "rnn: the state of {} is {}",
           cell == Cell::Lstm ? "an LSTM" : "this cell", cell == Cell::Lstm ? "a pair" : "one tensor");
  if (cx.defined()) check_size(cx, {n, h}, dtype, "the cell's state");
  TG_CHECK(!w_hr.defined() || cell == Cell::Lstm, Runtime, "rnn: only an LSTM has projections");
  if (w_hr.defined()) check_size(w_hr, {hx.size(1), h}, dtype, "the projection");
  check_batch_sizes(batch_sizes, n, input.size(0));
}

NetworkSizes check_network(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& weights,
                           IntSpan batch_sizes, int64_t cell, bool biases, int64_t num_layers, bool bidirectional) {
  TG_CHECK(cell >= 0 && cell <= 3, Runtime, "rnn: unknown cell {}", cell);
  const bool lstm = static_cast<Cell>(cell) == Cell::Lstm;
  TG_CHECK(is_floating_point(input.dtype()), Runtime, "rnn: expected input of a floating dtype: got {}", input.dtype());
  TG_CHECK(input.ndim() == 2 && hx.ndim() == 3 && hx.numel() > 0, Runtime,
           "rnn: expected input of 2 and a state of 3 dimensions with elements: got {} and {}",
           format_ints(input.sizes()), format_ints(hx.sizes()));
  const int64_t directions = bidirectional ? 2 : 1, n = hx.size(1);
  TG_CHECK(hx.size(0) % directions == 0 && hx.size(0) / directions == num_layers, Runtime,
           "rnn: expected a state of {} layers in {}: got {}", num_layers,
           bidirectional ? "both directions" : "one direction", format_ints(hx.sizes()));
  TG_CHECK(hx.dtype() == input.dtype(), Runtime, "rnn: the state must have dtype {}: got {}", input.dtype(),
           hx.dtype());
  TG_CHECK(cx.defined() == lstm && (!lstm || cx.ndim() == 3), Runtime, "rnn: the state of {} is {}",
           lstm ? "an LSTM" : "this cell", lstm ? "a pair" : "one tensor");
  const NetworkSizes sizes{static_cast<Cell>(cell),        biases,    bidirectional, num_layers, input.size(1),
                           lstm ? cx.size(2) : hx.size(2), hx.size(2)};
  if (lstm) check_size(cx, {hx.size(0), n, sizes.hidden}, input.dtype(), "the cell's state");
  check_batch_sizes(batch_sizes, n, input.size(0));
  // Before anything goes through all layers: any number of them may be named.
  const CheckedInt rows = CheckedInt(sizes.hidden) * rnn::gate_count(sizes.cell);
  const CheckedInt each =
      rows * sizes.state + (sizes.projects() ? CheckedInt(sizes.state) * sizes.hidden : 0) + (biases ? rows * 2 : 0);
  const CheckedInt deeper = rows * sizes.state * directions * directions * (num_layers - 1);
  const CheckedInt all = each * directions * num_layers + rows * sizes.input * directions + deeper;
  TG_CHECK(all.fits() && weights.ndim() == 1 && weights.numel() == all.value(), Runtime,
           "rnn: expected the weights as one vector of {} elements: got {}",
           all.fits() ? std::to_string(all.value()) : "too many", format_ints(weights.sizes()));
  TG_CHECK(weights.dtype() == input.dtype(), Runtime, "rnn: the weights must have dtype {}: got {}", input.dtype(),
           weights.dtype());
  return sizes;
}

}  // namespace

std::array<TensorSpec, 5> rnn_layer_shape(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih,
                                          const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh,
                                          const Tensor& w_hr, IntSpan batch_sizes, int64_t number, bool) {
  check_layer(input, hx, cx, w_ih, w_hh, w_hr, batch_sizes, number);
  const Cell cell = static_cast<Cell>(number);
  const int64_t total = input.size(0), rows = w_hh.size(0), h = rows / rnn::gate_count(cell);
  if (b_ih.defined()) check_size(b_ih, {rows}, input.dtype(), "the input's bias");
  if (b_hh.defined()) check_size(b_hh, {rows}, input.dtype(), "the state's bias");
  const bool lstm = cell == Cell::Lstm;
  return {spec(input, {total, hx.size(1)}), spec(input, DimVector(hx.sizes())),
          spec(input, lstm ? DimVector(cx.sizes()) : DimVector{0}),
          kept_spec(input, {total, kept_width(cell, h, input)}), kept_spec(input, {lstm ? total : 0, h})};
}

std::array<TensorSpec, 8> rnn_layer_grad_shape(const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy,
                                               const Tensor& input, const Tensor& hx, const Tensor& cx,
                                               const Tensor& w_ih, const Tensor& w_hh, const Tensor& w_hr,
                                               const Tensor& output, const Tensor& gates, const Tensor& cells,
                                               IntSpan batch_sizes, int64_t number, bool, bool input_wanted,
                                               bool weights_wanted) {
  check_layer(input, hx, cx, w_ih, w_hh, w_hr, batch_sizes, number);
  const Cell cell = static_cast<Cell>(number);
  const int64_t total = input.size(0), rows = w_hh.size(0), h = rows / rnn::gate_count(cell);
  const bool lstm = cell == Cell::Lstm;
  check_size(grad_output, {total, hx.size(1)}, input.dtype(), "the output's gradient");
  check_size(grad_hy, hx.sizes(), input.dtype(), "the state's gradient");
  if (lstm) check_size(grad_cy, cx.sizes(), input.dtype(), "the cell state's gradient");
  check_size(output, {total, hx.size(1)}, input.dtype(), "the output");
  const DType kept = compute_dtype(input.dtype());
  check_size(gates, {total, kept_width(cell, h, input)}, kept, "the gates");
  check_size(cells, {lstm ? total : 0, h}, kept, "the cell states");
  const auto weight = [&](const Tensor& w) {
    return spec(input, weights_wanted && w.defined() ? DimVector(w.sizes()) : DimVector{0});
  };
  const TensorSpec bias = spec(input, {weights_wanted ? rows : 0});
  return {spec(input, input_wanted ? DimVector(input.sizes()) : DimVector{0}),
          spec(input, DimVector(hx.sizes())),
          spec(input, lstm ? DimVector(cx.sizes()) : DimVector{0}),
          weight(w_ih),
          weight(w_hh),
          bias,
          bias,
          weight(w_hr)};
}

std::array<TensorSpec, 4> rnn_network_shape(const Tensor& input, const Tensor& hx, const Tensor& cx,
                                            const Tensor& weights, IntSpan batch_sizes, int64_t cell, bool biases,
                                            int64_t num_layers, bool bidirectional, int64_t, int64_t reserve) {
  const NetworkSizes sizes =
      check_network(input, hx, cx, weights, batch_sizes, cell, biases, num_layers, bidirectional);
  TG_CHECK(reserve >= 0, Runtime, "rnn: expected a number of bytes to keep: got {}", reserve);
  return {spec(input, {input.size(0), sizes.directions() * sizes.state}), spec(input, DimVector(hx.sizes())),
          spec(input, cx.defined() ? DimVector(cx.sizes()) : DimVector{0}),
          TensorSpec{{reserve}, DType::uint8, input.device(), {}}};
}

std::array<TensorSpec, 4> rnn_network_grad_shape(const Tensor& grad_output, const Tensor& grad_hy,
                                                 const Tensor& grad_cy, const Tensor& input, const Tensor& hx,
                                                 const Tensor& cx, const Tensor& weights, const Tensor& output,
                                                 const Tensor& kept, IntSpan batch_sizes, int64_t cell, bool biases,
                                                 int64_t num_layers, bool bidirectional, int64_t, bool weights_wanted) {
  const NetworkSizes sizes =
      check_network(input, hx, cx, weights, batch_sizes, cell, biases, num_layers, bidirectional);
  const DimVector result{input.size(0), sizes.directions() * sizes.state};
  check_size(grad_output, result, input.dtype(), "the output's gradient");
  check_size(output, result, input.dtype(), "the output");
  check_size(grad_hy, hx.sizes(), input.dtype(), "the state's gradient");
  TG_CHECK(grad_cy.defined() == cx.defined(), Runtime,
           "rnn: the gradient of the cell's state belongs to an LSTM, and to nothing else");
  if (cx.defined()) check_size(grad_cy, cx.sizes(), input.dtype(), "the cell state's gradient");
  TG_CHECK(kept.dtype() == DType::uint8 && kept.ndim() == 1, Runtime, "rnn: expected what was kept as bytes: got {} {}",
           kept.dtype(), format_ints(kept.sizes()));
  return {spec(input, DimVector(input.sizes())), spec(input, DimVector(hx.sizes())),
          spec(input, cx.defined() ? DimVector(cx.sizes()) : DimVector{0}),
          spec(input, weights_wanted ? DimVector(weights.sizes()) : DimVector{0})};
}

}  // namespace tapegrad
