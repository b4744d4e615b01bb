// How samples of the gamma and beta distributions move with their parameters at a fixed quantile: dx/da = -(dF/da) / p,
// with F the distribution function and p the density (Figurnov, Mohamed and Mnih, "Implicit Reparameterization
// Gradients", 2018). F is expanded in a series that is differentiated term by term; where the series needs too many
// terms, dF/da is the integral of p(t) (log t - E log t) over the side on which the integrand has one sign, so
// that nothing cancels, by Gauss and Legendre's rule. In double; relative error below 1e-8.
#pragma once

#include "tapegrad/aten/functors/special.h"

namespace tapegrad::fn {

namespace implicit {

inline constexpr int kMostTerms = 600;

// The integral of f over [0, end]: eight points on each of eight equal parts.
template <class F>
TG_HD inline double integral(double end, F&& f) {
  constexpr double kNode[] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267, 0.9602898564975363};
  constexpr double kWeight[] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745, 0.1012285362903763};
  const double half = end / 16;
  double sum = 0;
  for (int part = 0; part < 8; ++part) {
    const double middle = (2 * part + 1) * half;
    for (int k = 0; k < 4; ++k) sum += kWeight[k] * (f(middle - half * kNode[k]) + f(middle + half * kNode[k]));
  }
  return sum * half;
}

// The integral over [0, infinity) of exp(decay(u)) g(u) for a falling decay with decay(0) = 0; `rate` bounds its slope.
template <class Decay, class G>
TG_HD inline double decaying_integral(double rate, Decay&& decay, G&& g) {
  double end = 40 / rate, low = 0;
  for (int k = 0; k < 64 && decay(end) > -40; ++k) {
    low = end;
    end *= 2;
  }
  for (int k = 0; k < 8; ++k) {
    const double middle = (low + end) / 2;
    (decay(middle) > -40 ? low : end) = middle;
  }
  return integral(end, [&](double u) { return math::exp(decay(u)) * g(u); });
}

// Large shapes: x in powers of the normal quantile z (Goldberg and Levine, 1946), which Newton's method finds from x.
TG_HD inline bool large_gamma(double a, double x, double& result) {
  const double root = math::sqrt(a);
  const double distance = (x - a) / root;
  if (math::magnitude(distance) > 6) return false;
  double z = distance;
  for (int k = 0; k < 4; ++k) {
    const double z2 = z * z;
    const double value =
        z + (z2 - 1) / (3 * root) + z * (z2 - 7) / (36 * a) - (3 * z2 * z2 + 7 * z2 - 16) / (810 * a * root);
    const double slope = 1 + 2 * z / (3 * root) + (3 * z2 - 7) / (36 * a);
    z -= (value - distance) / slope;
  }
  const double z2 = z * z;
  result = 1 + z / (2 * root) - z * (z2 - 7) / (72 * a * root) + (3 * z2 * z2 + 7 * z2 - 16) / (810 * a * a);
  return true;
}

TG_HD inline double gamma_grad(double a, double x) {
  if (!(a > 0 && x >= 0) || a == std::numeric_limits<double>::infinity())
    return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return 0;
  double result = 0;
  if (a >= 2000 && large_gamma(a, x, result)) return result;
  if (x < a + 5 * math::sqrt(a) + 3) {
    // F = x^a e^-x / Gamma(a) sum of x^n / (a (a + 1) ... (a + n)), DLMF 8.7.1.
    double bracket = math::log(x) - digamma_of(a + 1), term = 1 / a, sum = 0;
    for (int n = 1; n < 20000; ++n) {
      const double part = term * bracket;
      sum += part;
      if (n > x - a && math::magnitude(part) <= 1e-17 * math::magnitude(sum)) break;
      term *= x / (a + n);
      bracket -= 1 / (a + n);
    }
    return -x * sum;
  }
  const double mean_log = digamma_of(a);
  return decaying_integral(
      1 - (a - 1) / x + 1e-12, [&](double s) { return (a - 1) * math::log1p(s / x) - s; },
      [&](double s) { return math::log(x + s) - mean_log; });
}

// For x of Beta(a, b), divided by 1 - x: what the gradient of a Dirichlet sample is made of.
TG_HD inline double beta_grad_below(double x, double a, double b) {
  // F = x^a (1 - x)^b / (a B(a, b)) sum of (a + b)_n / (a + 1)_n x^n, DLMF 8.17.8.
  double bracket = math::log(x) - digamma_of(a + 1) + digamma_of(a + b), term = 1 / a, sum = 0;
  for (int n = 0; n < kMostTerms; ++n) {
    const double part = term * bracket;
    sum += part;
    if (math::magnitude(part) <= 1e-17 * math::magnitude(sum)) return -x * sum;
    term *= x * (a + b + n) / (a + 1 + n);
    bracket += 1 / (a + b + n) - 1 / (a + 1 + n);
  }
  const double mean_log = digamma_of(a) - digamma_of(a + b), odds = x / (1 - x), log_x = math::log(x);
  return odds * decaying_integral(
                    a + math::magnitude(b - 1) * odds,
                    [&](double u) { return -a * u + (b - 1) * math::log1p(-odds * math::expm1(-u)); },
                    [&](double u) { return mean_log - log_x + u; });
}
TG_HD inline double beta_grad_above(double x, double a, double b) {
  const double y = 1 - x;
  double bracket = math::log(x) + digamma_of(a + b) - digamma_of(a), term = 1 / b, sum = 0;
  for (int n = 0; n < kMostTerms; ++n) {
    const double part = term * bracket;
    sum += part;
    if (math::magnitude(part) <= 1e-17 * math::magnitude(sum)) return x * sum;
    term *= y * (a + b + n) / (b + 1 + n);
    bracket += 1 / (a + b + n);
  }
  const double mean_log = digamma_of(a) - digamma_of(a + b), odds = y / x;
  return decaying_integral(
      b + math::magnitude(a - 1) * odds,
      [&](double u) { return -b * u + (a - 1) * math::log1p(-odds * math::expm1(-u)); },
      [&](double u) { return math::log1p(-y * math::exp(-u)) - mean_log; });
}
TG_HD inline double dirichlet_grad(double x, double a, double total) {
  const double b = total - a;
  if (!(a > 0 && b >= 0 && x >= 0 && x <= 1)) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0 || b == 0) return 0;
  return x < (a + 1) / (total + 2) ? beta_grad_below(x, a, b) : beta_grad_above(x, a, b);
}

}  // namespace implicit

template <class T>
struct _standard_gamma_grad {
  static constexpr int kCost = 300;
  TG_HD T operator()(T concentration, T sample) const {
    return static_cast<T>(implicit::gamma_grad(static_cast<double>(concentration), static_cast<double>(sample)));
  }
};
template <class T>
struct _dirichlet_grad {
  static constexpr int kCost = 500;
  TG_HD T operator()(T x, T concentration, T total) const {
    return static_cast<T>(implicit::dirichlet_grad(static_cast<double>(x), static_cast<double>(concentration),
                                                   static_cast<double>(total)));
  }
};

}  // namespace tapegrad::fn
