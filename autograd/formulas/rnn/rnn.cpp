#include "tapegrad/autograd/formulas/rnn/rnn.h"

#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/formulas/reverse.h"

namespace tapegrad {
namespace {

// s (1 - s) and 1 - t^2, the derivatives of a logistic and a tanh by their values.
Tensor logistic_slope(const Tensor& s) { return mul(s, rsub(s, 1)); }
Tensor tanh_slope(const Tensor& t) { return rsub(mul(t, t), 1); }

std::tuple<Tensor, Tensor, Tensor, Tensor> quadruple(const std::vector<Tensor>& t) { return {t[0], t[1], t[2], t[3]}; }

std::vector<bool> wanted(std::array<bool, 4> mask) { return {mask[0], mask[1], mask[2], mask[3]}; }

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> lstm_gates_double_grad(const Tensor& grad_gates, const Tensor& grad_cx,
                                                                  const Tensor& grad_hy, const Tensor& grad_cy,
                                                                  const Tensor& gates, const Tensor& cx,
                                                                  std::array<bool, 4> mask) {
  auto f = [](const std::vector<Tensor>& x) {
    int64_t h = x[3].size(1);
    auto part = [&](int64_t k) { return narrow(x[2], 1, k * h, h); };
    Tensor i = sigmoid(part(0)), forget = sigmoid(part(1)), g = tanh(part(2)), o = sigmoid(part(3));
    Tensor t = tanh(add(mul(forget, x[3]), mul(i, g)));
    Tensor dc = add(x[1], mul(mul(x[0], o), tanh_slope(t)));
    Tensor parts[] = {mul(mul(dc, g), logistic_slope(i)), mul(mul(dc, x[3]), logistic_slope(forget)),
                      mul(mul(dc, i), tanh_slope(g)), mul(mul(x[0], t), logistic_slope(o))};
    return std::vector<Tensor>{cat(parts, 1), mul(dc, forget)};
  };
  return quadruple(reverse(f, {grad_hy, grad_cy, gates, cx}, wanted(mask), {grad_gates, grad_cx}));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> gru_gates_double_grad(const Tensor& grad_input_gates,
                                                                 const Tensor& grad_hidden_gates, const Tensor& grad_hx,
                                                                 const Tensor& output, const Tensor& input_gates,
                                                                 const Tensor& hidden_gates, const Tensor& hx,
                                                                 std::array<bool, 4> mask) {
  auto f = [](const std::vector<Tensor>& x) {
    int64_t h = x[3].size(1);
    auto part = [&](const Tensor& t, int64_t k) { return narrow(t, 1, k * h, h); };
    Tensor reset = sigmoid(add(part(x[1], 0), part(x[2], 0))), update = sigmoid(add(part(x[1], 1), part(x[2], 1)));
    Tensor hidden = part(x[2], 2), next = tanh(add(part(x[1], 2), mul(reset, hidden)));
    Tensor dn = mul(mul(x[0], rsub(update, 1)), tanh_slope(next));
    Tensor dr = mul(mul(dn, hidden), logistic_slope(reset));
    Tensor du = mul(mul(x[0], sub(x[3], next)), logistic_slope(update));
    Tensor of_input[] = {dr, du, dn}, of_hidden[] = {dr, du, mul(dn, reset)};
    return std::vector<Tensor>{cat(of_input, 1), cat(of_hidden, 1), mul(x[0], update)};
  };
  return quadruple(reverse(f, {output, input_gates, hidden_gates, hx}, wanted(mask),
                           {grad_input_gates, grad_hidden_gates, grad_hx}));
}

}  // namespace tapegrad
