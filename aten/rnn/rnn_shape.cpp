// Shapes and checks of the recurrent cells' pointwise parts.
#include "tapegrad/aten/kernels_rnn.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {
namespace {

TensorSpec like(const Tensor& t) { return {DimVector(t.sizes()), t.dtype(), t.device(), {}}; }

void check_gates(const char* op, const Tensor& gates, const Tensor& state, int64_t count) {
  TG_CHECK(gates.is_floating_point() && gates.dtype() == state.dtype(), Runtime,
           "{}: input and state must be of one floating dtype: got {} and {}", op, gates.dtype(), state.dtype());
  TG_CHECK(state.ndim() == 2 && gates.ndim() == 2 && gates.size(0) == state.size(0) &&
               gates.size(1) == count * state.size(1),
           Runtime, "{}: expected gates (N, {} H) and state (N, H): got {} and {}", op, count,
           format_ints(gates.sizes()), format_ints(state.sizes()));
}

void check_grad(const char* op, const Tensor& grad, const Tensor& state) {
  TG_CHECK(grad.sizes() == state.sizes() && grad.dtype() == state.dtype(), Runtime,
           "{}: gradient {} {} for state {} {}", op, grad.dtype(), format_ints(grad.sizes()), state.dtype(),
           format_ints(state.sizes()));
}

}  // namespace

std::array<TensorSpec, 2> lstm_gates_shape(const Tensor& gates, const Tensor& cx) {
  check_gates("lstm_cell", gates, cx, 4);
  return {like(cx), like(cx)};
}

std::array<TensorSpec, 2> lstm_gates_grad_shape(const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& gates,
                                                const Tensor& cx) {
  check_gates("lstm_cell", gates, cx, 4);
  check_grad("lstm_cell", grad_hy, cx);
  check_grad("lstm_cell", grad_cy, cx);
  return {like(gates), like(cx)};
}

TensorSpec gru_gates_shape(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx) {
  check_gates("gru_cell", input_gates, hx, 3);
  check_gates("gru_cell", hidden_gates, hx, 3);
  return like(hx);
}

std::array<TensorSpec, 3> gru_gates_grad_shape(const Tensor& output, const Tensor& input_gates,
                                               const Tensor& hidden_gates, const Tensor& hx) {
  check_gates("gru_cell", input_gates, hx, 3);
  check_gates("gru_cell", hidden_gates, hx, 3);
  check_grad("gru_cell", output, hx);
  return {like(input_gates), like(hidden_gates), like(hx)};
}

}  // namespace tapegrad
