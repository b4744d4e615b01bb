// Distributions that are drawn by rejection, so that an element needs an unknown number of words: every element has a
// stream of its own, derived from the call's state and its number. Computed in double. Compiled per instruction set,
// and for devices.
#pragma once

#include <cmath>
#include <limits>
#include <utility>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/random/open_uniform.h"

namespace tapegrad::cpu::TG_ISA {

class DrawStream {
 public:
  TG_HD DrawStream(PhiloxState call, int64_t element)
      : state_{philox_derive_seed(call.seed, call.offset, static_cast<uint64_t>(element)), 0} {}
  // In (0, 1).
  TG_HD double uniform() {
    if (left_ == 0) {
      block_ = philox_block(state_, next_++);
      left_ = 2;
    }
    const int at = 2 * (2 - left_--);
    return open_uniform(block_.word[at] | uint64_t{block_.word[at + 1]} << 32);
  }

 private:
  PhiloxState state_;
  PhiloxBlock block_{};
  uint64_t next_ = 0;
  int left_ = 0;
};

// Knuth's product of uniforms for small rates; above, W. Hoermann, "The transformed rejection method for generating
// Poisson random variables", Insurance: Mathematics and Economics 12 (1993), algorithm PTRS.
TG_HD inline double poisson_of(double rate, DrawStream& stream) {
  if (rate == 0) return 0;
  if (rate < 10) {
    const double end = std::exp(-rate);
    double product = stream.uniform(), k = 0;
    for (; product > end; ++k) product *= stream.uniform();
    return k;
  }
  const double root = std::sqrt(rate), log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double inv_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = stream.uniform() - 0.5, v = stream.uniform(), us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inv_alpha) - std::log(a / (us * us) + b) <= -rate + k * log_rate - std::lgamma(k + 1))
      return k;
  }
}

// For p up to a half: sums of geometric waiting times where few successes are expected; else W. Hoermann, "The
// generation of binomial random variates", J. Statistical Computation and Simulation 46 (1993), algorithm BTRS.
TG_HD inline double binomial_small_p(double n, double p, DrawStream& stream) {
  if (n * p < 10) {
    const double scale = 1 / std::log1p(-p);
    double trials = 0, successes = 0;
    while (true) {
      trials += std::ceil(std::log(stream.uniform()) * scale);
      if (!(trials <= n)) return successes;
      ++successes;
    }
  }
  const double q = 1 - p, spread = std::sqrt(n * p * q);
  const double b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * p, c = n * p + 0.5;
  const double v_r = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * spread, log_odds = std::log(p / q);
  const double m = std::floor((n + 1) * p), h = std::lgamma(m + 1) + std::lgamma(n - m + 1);
  while (true) {
    const double u = stream.uniform() - 0.5, us = 0.5 - std::fabs(u);
    double v = stream.uniform();
    const double k = std::floor((2 * a / us + b) * u + c);
    if (k < 0 || k > n) continue;
    if (us >= 0.07 && v <= v_r) return k;
    v = std::log(v * alpha / (a / (us * us) + b));
    if (v <= h - std::lgamma(k + 1) - std::lgamma(n - k + 1) + (k - m) * log_odds) return k;
  }
}

TG_HD inline double binomial_of(double n, double p, DrawStream& stream) {
  if (n == 0 || p == 0) return 0;
  if (p == 1) return n;
  return p <= 0.5 ? binomial_small_p(n, p, stream) : n - binomial_small_p(n, 1 - p, stream);
}

TG_HD inline double normal_of(DrawStream& stream) {
  const double radius = std::sqrt(-2 * std::log(stream.uniform()));
  return radius * std::cos(2 * math::kPi * stream.uniform());
}

// The logarithm of a gamma variate, as shapes near zero give numbers below any dtype's. G. Marsaglia and W. W. Tsang,
// "A simple method for generating gamma variables", ACM Transactions on Mathematical Software 26 (2000).
TG_HD inline double log_gamma_variate(double shape, DrawStream& stream) {
  using Limits = std::numeric_limits<double>;
  if (!(shape > 0)) return shape == 0 ? -Limits::infinity() : Limits::quiet_NaN();
  if (std::isinf(shape)) return shape;
  double boost = 0;
  if (shape < 1) {
    boost = std::log(stream.uniform()) / shape;
    shape += 1;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal_of(stream), root = 1 + c * x;
    if (root <= 0) continue;
    const double log_v = 3 * std::log(root);
    if (std::log(stream.uniform()) < 0.5 * x * x + d - d * std::exp(log_v) + d * log_v)
      return std::log(d) + log_v + boost;
  }
}

// The least positive normal number and the distance of 1 from the number before it.
inline std::pair<double, double> limits_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return {6.103515625e-05, 0x1p-11};
    case DType::bfloat16:
      return {std::numeric_limits<float>::min(), 0x1p-8};
    case DType::float32:
      return {std::numeric_limits<float>::min(), 0x1p-24};
    default:
      return {std::numeric_limits<double>::min(), 0x1p-53};
  }
}

}  // namespace tapegrad::cpu::TG_ISA
