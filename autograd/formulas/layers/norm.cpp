#include "tapegrad/autograd/formulas/layers/norm.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/formulas/reverse.h"

namespace tapegrad {
namespace {

std::tuple<Tensor, Tensor, Tensor> triple(const std::vector<Tensor>& t) { return {t[0], t[1], t[2]}; }

// The 16-bit types compute in float32.
Tensor widened(const Tensor& t) { return t.defined() && is_half(t.dtype()) ? to(t, DType::float32) : t; }

Tensor narrowed(const Tensor& t, DType dtype) { return t.dtype() == dtype ? t : to(t, dtype); }

// The gradients of y = (x - mean) * rstd * weight + bias, x being (rows, length) with one mean and one rstd a row,
// in plain operators. weight broadcasts against x.
struct Gradients {
  Tensor input, scaled_sum, sum;  // scaled_sum: g * xhat, not yet summed over rows
};

Gradients plain_gradients(const Tensor& g, const Tensor& x, const Tensor& weight, IntSpan dims, double eps,
                          bool center) {
  Tensor d = center ? sub(x, mean(x, dims, true)) : x;
  Tensor rstd = pow(add(mean(mul(d, d), dims, true), eps), -0.5);
  Tensor xhat = mul(d, rstd);
  Tensor gw = weight.defined() ? mul(g, weight) : g;
  Tensor inner = sub(gw, mul(xhat, mean(mul(gw, xhat), dims, true)));
  if (center) inner = sub(inner, mean(gw, dims, true));
  return {mul(inner, rstd), mul(g, xhat), g};
}

DimVector all_but(int64_t ndim, int64_t kept) {
  DimVector dims;
  for (int64_t d = 0; d < ndim; ++d)
    if (d != kept) dims.push_back(d);
  return dims;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> batch_norm_double_grad(const Tensor& grad_input, const Tensor& grad_weight,
                                                          const Tensor& grad_bias, const Tensor& output,
                                                          const Tensor& input, const Tensor& weight, double eps,
                                                          std::array<bool, 3> mask) {
  auto f = [eps](const std::vector<Tensor>& in) {
    Tensor g = widened(in[0]), x = widened(in[1]), w = widened(in[2]);
    DimVector dims = all_but(x.ndim(), 1), shape(static_cast<size_t>(x.ndim()) - 1, 1);
    shape[0] = x.size(1);
    Gradients r = plain_gradients(g, x, w.defined() ? reshape(w, shape) : w, dims, eps, true);
    return std::vector<Tensor>{narrowed(r.input, in[1].dtype()), sum(r.scaled_sum, OptionalInts(dims)),
                               sum(r.sum, OptionalInts(dims))};
  };
  return triple(reverse(f, {output, input, weight}, {mask[0], mask[1], mask[2]}, {grad_input, grad_weight, grad_bias}));
}

std::tuple<Tensor, Tensor, Tensor> group_norm_double_grad(const Tensor& grad_input, const Tensor& grad_weight,
                                                          const Tensor& grad_bias, const Tensor& output,
                                                          const Tensor& input, int64_t samples, int64_t channels,
                                                          int64_t groups, const Tensor& weight, double eps, bool center,
                                                          std::array<bool, 3> mask) {
  auto f = [=](const std::vector<Tensor>& in) {
    int64_t spatial = samples * channels == 0 ? 0 : in[1].numel() / (samples * channels);
    DimVector shape{samples, groups, channels / groups, spatial};
    Tensor g = reshape(widened(in[0]), shape), x = reshape(widened(in[1]), shape), w = widened(in[2]);
    if (w.defined()) w = reshape(w, {1, groups, channels / groups, 1});
    Gradients r = plain_gradients(g, x, w, {2, 3}, eps, center);
    auto per_channel = [&](const Tensor& t) { return reshape(sum(t, OptionalInts(IntSpan{0, 3})), {channels}); };
    return std::vector<Tensor>{narrowed(reshape(r.input, in[1].sizes()), in[1].dtype()), per_channel(r.scaled_sum),
                               per_channel(r.sum)};
  };
  return triple(reverse(f, {output, input, weight}, {mask[0], mask[1], mask[2]}, {grad_input, grad_weight, grad_bias}));
}

std::tuple<Tensor, Tensor, Tensor> batch_norm_eval_grad(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                        const Tensor& mean, const Tensor& var, double eps,
                                                        std::array<bool, 3> mask) {
  DimVector dims = all_but(input.ndim(), 1), shape(static_cast<size_t>(input.ndim()) - 1, 1);
  shape[0] = input.size(1);
  Tensor invstd = pow(add(widened(var), eps), -0.5), g = widened(grad);
  std::tuple<Tensor, Tensor, Tensor> r;
  if (mask[0]) {
    Tensor scale = weight.defined() ? mul(invstd, reshape(widened(weight), invstd.sizes())) : invstd;
    std::get<0>(r) = narrowed(mul(g, reshape(scale, shape)), input.dtype());
  }
  if (mask[1] && weight.defined()) {
    Tensor xhat = mul(sub(widened(input), reshape(widened(mean), shape)), reshape(invstd, shape));
    std::get<1>(r) = narrowed(sum(mul(g, xhat), OptionalInts(dims)), weight.dtype());
  }
  if (mask[2]) std::get<2>(r) = sum(g, OptionalInts(dims));
  return r;
}

}  // namespace tapegrad
