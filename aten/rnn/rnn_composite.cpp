// Recurrent cells: two products and a pointwise part.
#include "tapegrad/aten/kernels_rnn.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::composite {
namespace {

void check_cell(const char* op, const Tensor& input, const Tensor& hx) {
  TG_CHECK(input.ndim() == 2 && hx.ndim() == 2 && input.size(0) == hx.size(0), Runtime,
           "{}: expected input (N, I) and state (N, H): got {} and {}", op, format_ints(input.sizes()),
           format_ints(hx.sizes()));
}

Tensor gate_sums(const char* op, const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                 const Tensor& b_ih, const Tensor& b_hh) {
  check_cell(op, input, hx);
  return add(linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh));
}

}  // namespace

std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, TensorSpan hx, const Tensor& w_ih, const Tensor& w_hh,
                                     const Tensor& b_ih, const Tensor& b_hh) {
  TG_CHECK(hx.size() == 2, Runtime, "lstm_cell: the state is the pair (h, c): got {} tensors", hx.size());
  return _lstm_gates(gate_sums("lstm_cell", input, hx[0], w_ih, w_hh, b_ih, b_hh), hx[1]);
}

Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                const Tensor& b_hh) {
  check_cell("gru_cell", input, hx);
  return _gru_gates(linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh), hx);
}

Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return tanh(gate_sums("rnn_tanh_cell", input, hx, w_ih, w_hh, b_ih, b_hh));
}

Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return relu(gate_sums("rnn_relu_cell", input, hx, w_ih, w_hh, b_ih, b_hh));
}

}  // namespace tapegrad::composite
