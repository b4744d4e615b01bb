// Recurrent cells: layers of a single step.
#include "tapegrad/aten/functions_rnn.h"
#include "tapegrad/aten/kernels_rnn.h"
#include "tapegrad/aten/rnn/cell.h"
#include "tapegrad/aten/rnn/layer.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::composite {
namespace {

using rnn::Cell;

rnn::LayerResult step(const char* op, Cell cell, const Tensor& input, const Tensor& hx, const Tensor& cx,
                      const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh) {
  TG_CHECK(input.ndim() == 2 && hx.ndim() == 2 && input.size(0) == hx.size(0), Runtime,
           "{}: expected input (N, I) and state (N, H): got {} and {}", op, format_ints(input.sizes()),
           format_ints(hx.sizes()));
  const int64_t sizes[] = {input.size(0)};
  return rnn::layer(input, hx, cx, {w_ih, w_hh, b_ih, b_hh, {}}, sizes, cell, false);
}

}  // namespace

std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, TensorSpan hx, const Tensor& w_ih, const Tensor& w_hh,
                                     const Tensor& b_ih, const Tensor& b_hh) {
  TG_CHECK(hx.size() == 2, Runtime, "lstm_cell: the state is the pair (h, c): got {} tensors", hx.size());
  const rnn::LayerResult r = step("lstm_cell", Cell::Lstm, input, hx[0], hx[1], w_ih, w_hh, b_ih, b_hh);
  return {r.hy, r.cy};
}

Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                const Tensor& b_hh) {
  return step("gru_cell", Cell::Gru, input, hx, {}, w_ih, w_hh, b_ih, b_hh).hy;
}

Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return step("rnn_tanh_cell", Cell::Tanh, input, hx, {}, w_ih, w_hh, b_ih, b_hh).hy;
}

Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return step("rnn_relu_cell", Cell::Relu, input, hx, {}, w_ih, w_hh, b_ih, b_hh).hy;
}

}  // namespace tapegrad::composite
