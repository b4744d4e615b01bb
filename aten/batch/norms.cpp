#include "tapegrad/aten/batch/part.h"
#include "tapegrad/aten/batch/rules.h"
#include "tapegrad/aten/functions_norm.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad::batch {

using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Four batch_norm_train(const Tensor& input, const Tensor& weight, const Tensor& bias, double eps) {
  const auto [level_number, n, x, w, b] = samples_of("batch_norm", input, weight, bias);
  TG_CHECK(x.ndim() >= 2, Runtime, "batch_norm: input must have at least 2 dimensions: got shape {}",
           format_ints(input.sizes()));
  return all_at_level<Four>(level_number, [&] {
    auto [output, mean, invstd, var] = _batch_norm_train(x.folded(n, 1), w.folded(n, 0), b.folded(n, 0), eps);
    return Four(unfolded(output, n, 1), unfolded(mean, n, 0), unfolded(invstd, n, 0), unfolded(var, n, 0));
  });
}

Three batch_norm_train_grad(const Tensor& output, const Tensor& input, const Tensor& weight, const Tensor& mean,
                            const Tensor& invstd, double eps) {
  const auto [level_number, n, g, x, w, m, s] = parts_of(output, input, weight, mean, invstd);
  return all_at_level<Three>(level_number, [&] {
    auto [input_grad, weight_grad, bias_grad] =
        _batch_norm_train_grad(g.folded(n, 1), x.folded(n, 1), w.folded(n, 0), m.folded(n, 0), s.folded(n, 0), eps);
    return Three(unfolded(input_grad, n, 1), unfolded(weight_grad, n, 0), unfolded(bias_grad, n, 0));
  });
}

Tensor batch_norm_eval(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                       const Tensor& var, double eps) {
  const auto [level_number, n, x, w, b, m, v] = samples_of("batch_norm", input, weight, bias, mean, var);
  TG_CHECK(x.ndim() >= 2, Runtime, "batch_norm: input must have at least 2 dimensions: got shape {}",
           format_ints(input.sizes()));
  return at_level(level_number, true, [&] {
    if (!any_has_dim({&w, &b, &m, &v}))  // more rows, where they lie
      return unfolded(_batch_norm_eval(x.folded(n, 0), w.t, b.t, m.t, v.t, eps), n, 0);
    return unfolded(
        _batch_norm_eval(x.folded(n, 1), w.folded(n, 0), b.folded(n, 0), m.folded(n, 0), v.folded(n, 0), eps), n, 1);
  });
}

namespace {

// A tensor of `rows` rows of `channels` channels, whatever its shape, with the samples' channels one after the other.
Tensor by_channels(const Part& p, int64_t n, int64_t rows, int64_t channels) {
  const int64_t all = rows * channels, inner = all == 0 ? 0 : product(p.t.sizes()) / (p.has_dim ? n : 1) / all;
  const Tensor split = tapegrad::reshape(p.led(n), {n, rows, channels, inner});
  return tapegrad::reshape(tapegrad::movedim(split, IntSpan{0}, IntSpan{1}), {rows, n * channels, inner});
}

Tensor from_channels(const Tensor& t, int64_t n, int64_t rows, int64_t channels, IntSpan sizes) {
  const Tensor split = tapegrad::movedim(tapegrad::reshape(t, {rows, n, channels, t.size(-1)}), IntSpan{1}, IntSpan{0});
  return tapegrad::reshape(split, led_by(n, sizes));
}

}  // namespace

Three group_norm(const Tensor& input, int64_t samples, int64_t channels, int64_t groups, const Tensor& weight,
                 const Tensor& bias, double eps, bool center) {
  const auto [level_number, n, x, w, b] = samples_of("group_norm", input, weight, bias);
  const DimVector sizes(input.sizes());
  return all_at_level<Three>(level_number, [&] {
    if (!any_has_dim({&w, &b})) {  // more rows, where they lie
      auto [output, mean, rstd] = _group_norm(x.led(n), n * samples, channels, groups, w.t, b.t, eps, center);
      return Three(output, tapegrad::reshape(mean, {n, samples, groups}),
                   tapegrad::reshape(rstd, {n, samples, groups}));
    }
    auto [output, mean, rstd] = _group_norm(by_channels(x, n, samples, channels), samples, n * channels, n * groups,
                                            w.folded(n, 0), b.folded(n, 0), eps, center);
    return Three(from_channels(output, n, samples, channels, sizes), unfolded(mean, n, 1), unfolded(rstd, n, 1));
  });
}

Three group_norm_grad(const Tensor& output, const Tensor& input, int64_t samples, int64_t channels, int64_t groups,
                      const Tensor& weight, const Tensor& mean, const Tensor& rstd, double eps, bool center) {
  const auto [level_number, n, g, x, w, m, r] = parts_of(output, input, weight, mean, rstd);
  const DimVector sizes(input.sizes());
  return all_at_level<Three>(level_number, [&] {
    // The gradients of the parameters are sums over rows: they must not become sums over samples.
    auto statistics = [&](const Part& p) {
      return tapegrad::reshape(
          tapegrad::movedim(tapegrad::reshape(p.led(n), {n, samples, groups}), IntSpan{0}, IntSpan{1}),
          {samples, n * groups});
    };
    auto [input_grad, weight_grad, bias_grad] =
        _group_norm_grad(by_channels(g, n, samples, channels), by_channels(x, n, samples, channels), samples,
                         n * channels, n * groups, w.folded(n, 0), statistics(m), statistics(r), eps, center);
    return Three(from_channels(input_grad, n, samples, channels, sizes), unfolded(weight_grad, n, 0),
                 unfolded(bias_grad, n, 0));
  });
}

}  // namespace tapegrad::batch
