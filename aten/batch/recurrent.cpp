#include "tapegrad/aten/batch/part.h"
#include "tapegrad/aten/batch/rules.h"
#include "tapegrad/aten/functions_rnn.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad::batch {
namespace {

using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using Eight = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

// Rows (rows, width) with those of all samples next to each other: at every step the sequences of one length stay
// together, longest first.
Tensor interleaved(const Part& p, int64_t n) {
  const Tensor full = p.led(n);
  if (!full.defined()) return full;
  return tapegrad::reshape(tapegrad::movedim(full, IntSpan{0}, IntSpan{1}), {full.size(1) * n, full.size(2)});
}

Tensor separated(const Tensor& t, int64_t n) {
  if (t.ndim() != 2) return tapegrad::expand(t, led_by(n, t.sizes()));  // an empty one, which stands for none
  return tapegrad::movedim(tapegrad::reshape(t, {t.size(0) / n, n, t.size(1)}), IntSpan{1}, IntSpan{0});
}

DimVector times(IntSpan sizes, int64_t n) {
  DimVector result(sizes);
  for (int64_t& s : result) s *= n;
  return result;
}

}  // namespace

Five rnn_layer(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
               const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, IntSpan batch_sizes, int64_t cell,
               bool reverse) {
  const auto [here, n, p] = list_of_parts({&input, &hx, &cx, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr});
  check_samples("rnn", n);
  return all_at_level<Five>(here, [&] {
    if (any_has_dim({&p[3], &p[4], &p[5], &p[6], &p[7]}))
      return each_sample<Five>(n, p, [&](const std::vector<Tensor>& a) {
        return _rnn_layer(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], batch_sizes, cell, reverse);
      });
    auto [output, hy, cy, gates, cells] =
        _rnn_layer(interleaved(p[0], n), interleaved(p[1], n), interleaved(p[2], n), p[3].t, p[4].t, p[5].t, p[6].t,
                   p[7].t, times(batch_sizes, n), cell, reverse);
    return Five(separated(output, n), separated(hy, n), separated(cy, n), separated(gates, n), separated(cells, n));
  });
}

Eight rnn_layer_grad(const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input,
                     const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& w_hr,
                     const Tensor& output, const Tensor& gates, const Tensor& cells, IntSpan batch_sizes, int64_t cell,
                     bool reverse, bool input_wanted, bool weights_wanted) {
  const auto [here, n, p] =
      list_of_parts({&grad_output, &grad_hy, &grad_cy, &input, &hx, &cx, &w_ih, &w_hh, &w_hr, &output, &gates, &cells});
  return all_at_level<Eight>(here, [&] {
    // The gradients of weights are sums over all rows: each sample needs sums of its own.
    if (weights_wanted || any_has_dim({&p[6], &p[7], &p[8]}))
      return each_sample<Eight>(n, p, [&](const std::vector<Tensor>& a) {
        return _rnn_layer_grad(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], batch_sizes,
                               cell, reverse, input_wanted, weights_wanted);
      });
    auto rows = [&](size_t i) { return interleaved(p[i], n); };
    auto [input_grad, hx_grad, cx_grad, a, b, c, d, e] =
        _rnn_layer_grad(rows(0), rows(1), rows(2), rows(3), rows(4), rows(5), p[6].t, p[7].t, p[8].t, rows(9), rows(10),
                        rows(11), times(batch_sizes, n), cell, reverse, input_wanted, weights_wanted);
    return Eight(separated(input_grad, n), separated(hx_grad, n), separated(cx_grad, n), separated(a, n),
                 separated(b, n), separated(c, n), separated(d, n), separated(e, n));
  });
}

}  // namespace tapegrad::batch
