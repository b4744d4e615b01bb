#include "tapegrad/nn/init.h"

#include <cmath>

#include "tapegrad/c10/modes.h"

namespace tapegrad::nn::init {

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
  const NoGradGuard no_grad;
  return t.uniform_(low, high);
}
Tensor normal_(const Tensor& t, double mean, double std) {
  const NoGradGuard no_grad;
  return t.normal_(mean, std);
}
Tensor constant_(const Tensor& t, double value) {
  const NoGradGuard no_grad;
  return t.fill_(value);
}
Tensor ones_(const Tensor& t) { return constant_(t, 1); }
Tensor zeros_(const Tensor& t) { return constant_(t, 0); }

Tensor eye_(const Tensor& t) {
  TG_CHECK(t.dim() == 2, Value, "eye_: expected 2 dimensions: got shape {}", format_ints(t.sizes()));
  const NoGradGuard no_grad;
  t.zero_();
  t.diagonal().fill_(1);
  return t;
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
