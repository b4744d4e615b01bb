#include "tapegrad/nn/init.h"

#include <algorithm>
#include <cmath>

#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_decompose.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::nn::init {

namespace {
thread_local int skipping = 0;
}
SkipGuard::SkipGuard() { ++skipping; }
SkipGuard::~SkipGuard() { --skipping; }

std::pair<int64_t, int64_t> calculate_fan_in_and_fan_out(const Tensor& weight) {
  TG_CHECK(weight.dim() >= 2, Value, "init: fan in and fan out need a weight of at least 2 dimensions: got shape {}",
           format_ints(weight.sizes()));
  int64_t field = 1;
  for (int64_t d = 2; d < weight.dim(); ++d) field *= weight.size(d);
  return {weight.size(1) * field, weight.size(0) * field};
}

int64_t calculate_fan_in(const Tensor& weight) { return calculate_fan_in_and_fan_out(weight).first; }

double calculate_gain(std::string_view nonlinearity, double param) {
  if (nonlinearity == "linear" || nonlinearity == "sigmoid" || nonlinearity.starts_with("conv")) return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2.0 / (1 + param * param));
  if (nonlinearity == "selu") return 3.0 / 4;
  TG_THROW(Value, "calculate_gain: unsupported nonlinearity \"{}\"", nonlinearity);
}

Tensor uniform_(const Tensor& t, double low, double high) {
  if (skipping) return t;
  const NoGradGuard no_grad;
  return t.uniform_(low, high);
}
Tensor normal_(const Tensor& t, double mean, double std) {
  if (skipping) return t;
  const NoGradGuard no_grad;
  return t.normal_(mean, std);
}
Tensor constant_(const Tensor& t, double value) {
  if (skipping) return t;
  const NoGradGuard no_grad;
  return t.fill_(value);
}
Tensor ones_(const Tensor& t) { return constant_(t, 1); }
Tensor zeros_(const Tensor& t) { return constant_(t, 0); }

Tensor eye_(const Tensor& t) {
  TG_CHECK(t.dim() == 2, Value, "eye_: expected 2 dimensions: got shape {}", format_ints(t.sizes()));
  if (skipping) return t;
  const NoGradGuard no_grad;
  t.zero_();
  t.diagonal().fill_(1);
  return t;
}

Tensor dirac_(const Tensor& t, int64_t groups) {
  TG_CHECK(t.dim() >= 3 && t.dim() <= 5, Value, "dirac_: expected 3, 4 or 5 dimensions: got shape {}",
           format_ints(t.sizes()));
  TG_CHECK(groups > 0 && t.size(0) % groups == 0, Value, "dirac_: dim 0 must be divisible by groups: got {} and {}",
           t.size(0), groups);
  if (skipping) return t;
  const NoGradGuard no_grad;
  t.zero_();
  const int64_t per_group = t.size(0) / groups;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t d = 0; d < std::min(per_group, t.size(1)); ++d) {
      Tensor one = t.select(0, g * per_group + d).select(0, d);
      while (one.dim() > 0) one = one.select(0, one.size(0) / 2);
      one.fill_(1);
    }
  return t;
}

Tensor trunc_normal_(const Tensor& t, double mean, double std, double a, double b) {
  if (skipping) return t;
  const NoGradGuard no_grad;
  const auto cdf = [](double x) { return (1.0 + std::erf(x / std::sqrt(2.0))) / 2.0; };
  const double low = cdf((a - mean) / std), high = cdf((b - mean) / std);
  t.uniform_(2 * low - 1, 2 * high - 1);
  t.erfinv_();
  t.mul_(std * std::sqrt(2.0)).add_(mean);
  return t.clamp_(a, b);
}

Tensor sparse_(const Tensor& t, double sparsity, double std) {
  TG_CHECK(t.dim() == 2, Value, "sparse_: expected 2 dimensions: got shape {}", format_ints(t.sizes()));
  TG_CHECK(sparsity >= 0 && sparsity <= 1, Value, "sparse_: expected a fraction: got {}", sparsity);
  if (skipping) return t;
  const NoGradGuard no_grad;
  t.normal_(0, std);
  const auto count = static_cast<int64_t>(std::ceil(sparsity * static_cast<double>(t.size(0))));
  for (int64_t column = 0; column < t.size(1); ++column)
    t.select(1, column).index_fill_(0, tapegrad::randperm(t.size(0)).narrow(0, 0, count), 0);
  return t;
}

Tensor orthogonal_(const Tensor& t, double gain) {
  TG_CHECK(t.dim() >= 2, Value, "orthogonal_: expected at least 2 dimensions: got shape {}", format_ints(t.sizes()));
  if (skipping || t.numel() == 0) return t;
  const NoGradGuard no_grad;
  const int64_t rows = t.size(0), columns = t.numel() / rows;
  Tensor flat = tapegrad::empty({rows, columns}, t.dtype(), t.device()).normal_(0, 1);
  if (rows < columns) flat = flat.t();
  const auto [q, r] = tapegrad::linalg_qr(flat);
  Tensor signed_q = q * r.diagonal().sign();  // makes the distribution uniform
  if (rows < columns) signed_q = signed_q.t();
  t.copy_(signed_q.reshape(t.sizes()));
  return t.mul_(gain);
}

Tensor xavier_uniform_(const Tensor& t, double gain) {
  const auto [in, out] = calculate_fan_in_and_fan_out(t);
  const double bound = std::sqrt(3.0) * gain * std::sqrt(2.0 / static_cast<double>(in + out));
  return init::uniform_(t, -bound, bound);
}
Tensor xavier_normal_(const Tensor& t, double gain) {
  const auto [in, out] = calculate_fan_in_and_fan_out(t);
  return init::normal_(t, 0, gain * std::sqrt(2.0 / static_cast<double>(in + out)));
}

namespace {

double kaiming_std(const Tensor& t, double a, FanMode mode, std::string_view nonlinearity) {
  const auto [in, out] = calculate_fan_in_and_fan_out(t);
  return calculate_gain(nonlinearity, a) / std::sqrt(static_cast<double>(mode == FanMode::in ? in : out));
}

}  // namespace

Tensor kaiming_uniform_(const Tensor& t, double a, FanMode mode, std::string_view nonlinearity) {
  if (t.numel() == 0) return t;
  const double bound = std::sqrt(3.0) * kaiming_std(t, a, mode, nonlinearity);
  return init::uniform_(t, -bound, bound);
}
Tensor kaiming_normal_(const Tensor& t, double a, FanMode mode, std::string_view nonlinearity) {
  if (t.numel() == 0) return t;
  return init::normal_(t, 0, kaiming_std(t, a, mode, nonlinearity));
}

}  // namespace tapegrad::nn::init
