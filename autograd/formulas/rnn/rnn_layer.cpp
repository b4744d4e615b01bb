#include "tapegrad/autograd/formulas/rnn/rnn_layer.h"

#include "tapegrad/aten/functions_activation.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_rnn.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/rnn/cell.h"
#include "tapegrad/autograd/formulas/reverse.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {
namespace {

using rnn::Cell;

// The layer in operators: outputs {output, hy} or {output, hy, cy} of {input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr}.
std::vector<Tensor> plain_layer(const std::vector<Tensor>& x, IntSpan batch_sizes, Cell cell, bool backwards) {
  const Tensor &input = x[0], &w_hh = x[4], &b_hh = x[6], &w_hr = x[7];
  const Tensor projected = linear(input, x[3], x[5]);
  const int64_t steps = static_cast<int64_t>(batch_sizes.size());
  Tensor h = x[1], c = x[2];
  std::vector<Tensor> outputs(static_cast<size_t>(steps));
  int64_t start = backwards ? input.size(0) : 0;
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = backwards ? steps - 1 - i : i, n = batch_sizes[static_cast<size_t>(t)], all = h.size(0);
    if (backwards) start -= n;
    const Tensor in = narrow(projected, 0, start, n), before = narrow(h, 0, 0, n);
    const Tensor hidden = linear(before, w_hh, b_hh);
    Tensor next, next_c;
    if (cell == Cell::Lstm) {
      std::tie(next, next_c) = _lstm_gates(add(in, hidden), narrow(c, 0, 0, n));
      if (w_hr.defined()) next = linear(next, w_hr);
    } else if (cell == Cell::Gru) {
      next = _gru_gates(in, hidden, before);
    } else {
      next = cell == Cell::Tanh ? tanh(add(in, hidden)) : relu(add(in, hidden));
    }
    outputs[static_cast<size_t>(t)] = next;
    const auto joined = [&](const Tensor& head, const Tensor& old) {  // sequences that have ended keep their state
      if (n == all) return head;
      const Tensor parts[] = {head, narrow(old, 0, n, all - n)};
      return cat(parts, 0);
    };
    if (cell == Cell::Lstm) c = joined(next_c, c);
    h = joined(next, h);
    if (!backwards) start += n;
  }
  std::vector<Tensor> result{cat(outputs, 0), h};
  if (cell == Cell::Lstm) result.push_back(c);
  return result;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> rnn_layer_grad(
    const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input, const Tensor& hx,
    const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh,
    const Tensor& w_hr, const Tensor& output, const Tensor& gates, const Tensor& cells, IntSpan batch_sizes,
    int64_t cell, bool backwards, std::array<bool, 8> mask) {
  const bool lstm = static_cast<Cell>(cell) == Cell::Lstm;
  if (grad_enabled()) {
    const auto all_to = [](std::vector<Tensor> tensors, DType dtype) {
      for (Tensor& t : tensors)
        if (t.defined()) t = to(t, dtype);
      return tensors;
    };
    const auto f = [&](const std::vector<Tensor>& x) {  // of 16-bit types rounded at the end
      const DType dtype = input.dtype();
      return all_to(plain_layer(all_to(x, compute_dtype(dtype)), batch_sizes, static_cast<Cell>(cell), backwards),
                    dtype);
    };
    std::vector<Tensor> seeds{grad_output, grad_hy};
    if (lstm) seeds.push_back(grad_cy);
    const std::vector<Tensor> r =
        reverse(f, {input, hx, lstm ? cx : Tensor(), w_ih, w_hh, b_ih, b_hh, w_hr},
                {mask[0], mask[1], mask[2], mask[3], mask[4], mask[5], mask[6], mask[7]}, seeds);
    return {r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]};
  }
  const bool weights = mask[3] || mask[4] || mask[5] || mask[6] || mask[7];
  auto r = _rnn_layer_grad(grad_output, grad_hy, lstm ? grad_cy : Tensor(), input, hx, cx, w_ih, w_hh, w_hr, output,
                           gates, cells, batch_sizes, cell, backwards, mask[0], weights);
  if (!mask[0]) std::get<0>(r).reset();
  if (!mask[2]) std::get<2>(r).reset();
  if (!mask[3]) std::get<3>(r).reset();
  if (!mask[4]) std::get<4>(r).reset();
  if (!mask[5]) std::get<5>(r).reset();
  if (!mask[6]) std::get<6>(r).reset();
  if (!mask[7]) std::get<7>(r).reset();
  return r;
}

}  // namespace tapegrad
