#include "tapegrad/autograd/formulas/rnn/rnn_network.h"

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_rnn.h"
#include "tapegrad/aten/rnn/network_library.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/formulas/reverse.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {

std::tuple<Tensor, Tensor, Tensor, Tensor> rnn_network_grad(
    const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input, const Tensor& hx,
    const Tensor& cx, const Tensor& weights, const Tensor& output, const Tensor& kept, IntSpan batch_sizes,
    int64_t number, bool biases, int64_t num_layers, bool bidirectional, int64_t method, std::array<bool, 4> mask) {
  const rnn::Cell cell = static_cast<rnn::Cell>(number);
  const bool lstm = cell == rnn::Cell::Lstm;
  const bool batched = batch::is_batched(grad_output) || batch::is_batched(grad_hy) || batch::is_batched(grad_cy);
  if (!grad_enabled() && !batched) {  // once for each sample, what was kept would not do
    try {
      // The library writes into what it kept.
      auto r = _rnn_network_grad(grad_output, grad_hy, lstm ? grad_cy : Tensor(), input, hx, cx, weights, output,
                                 autograd::keeps_graph() ? clone(kept) : kept, batch_sizes, number, biases, num_layers,
                                 bidirectional, method, mask[3]);
      if (!mask[0]) std::get<0>(r).reset();
      if (!mask[1]) std::get<1>(r).reset();
      if (!mask[2]) std::get<2>(r).reset();
      if (!mask[3]) std::get<3>(r).reset();
      return r;
    } catch (const rnn::Refused&) {
    }
  }
  const rnn::NetworkSizes sizes{
      cell, biases, bidirectional, num_layers, input.size(1), lstm ? cx.size(2) : hx.size(2), hx.size(2)};
  const auto f = [&](const std::vector<Tensor>& x) {
    const rnn::LayerResult r =
        rnn::layers(x[0], x[1], x[2], rnn::separate_weights(x[3], sizes), batch_sizes, cell, bidirectional);
    return lstm ? std::vector<Tensor>{r.output, r.hy, r.cy} : std::vector<Tensor>{r.output, r.hy};
  };
  std::vector<Tensor> seeds{grad_output, grad_hy};
  if (lstm) seeds.push_back(grad_cy);
  const std::vector<Tensor> r =
      reverse(f, {input, hx, lstm ? cx : Tensor(), weights}, {mask[0], mask[1], mask[2], mask[3]}, seeds);
  return {r[0], r[1], r[2], r[3]};
}

}  // namespace tapegrad
