// Special functions: gamma and its derivatives, inverse error function, entropies and the like.
#pragma once

#include "tapegrad/aten/functors/elementary.h"
#include "tapegrad/aten/functors/log_add.h"
#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn {

template <class T>
struct lgamma {
  static constexpr int kCost = 24;
  TG_HD T operator()(T x) const { return math::lgamma(x); }
};

// Digamma, in double for every type. Reflection for negative arguments, the recurrence up to 10, then the
// asymptotic series: Abramowitz and Stegun, 6.3.7, 6.3.5 and 6.3.18.
TG_HD inline double digamma_of(double x) {
  if (x == 0) return math::copysign(std::numeric_limits<double>::infinity(), -x);
  double shift = 0;
  if (x < 0) {
    if (x == math::trunc(x)) return std::numeric_limits<double>::quiet_NaN();
    // pi / tan(pi x) with the whole part taken off, so that the argument stays exact.
    shift = -math::kPi / math::tan(math::kPi * (x - math::trunc(x)));
    x = 1 - x;
  }
  while (x < 10) {
    shift -= 1 / x;
    x += 1;
  }
  const double s = 1 / (x * x);
  const double series =
      s *
      (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - s * (1.0 / 240 - s * (1.0 / 132 - s * (691.0 / 32760 - s / 12))))));
  return shift + math::log(x) - 0.5 / x - series;
}
// The same for float without branches: six steps of the recurrence for every number, as one fraction.
TG_HD inline double digamma_of_float(double x) {
  const double y = x < 0 ? 1 - x : x;
  const double a = 2 * y + 1, b = y * (y + 1), c = 2 * y + 5, d = (y + 2) * (y + 3), e = 2 * y + 9,
               f = (y + 4) * (y + 5);
  const double steps = (a * d * f + b * (c * f + e * d)) / (b * d * f);
  const double r = 1 / (y + 6), s = r * r;
  const double series = s * (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - s * (1.0 / 240 - s * (1.0 / 132)))));
  const double right = math::log(y + 6) - 0.5 * r - series - steps, fraction = x - math::trunc(x);
  const double left = right - math::kPi / math::tan(x < 0 ? math::kPi * fraction : 1);
  const double pole =
      x == 0 ? math::copysign(std::numeric_limits<double>::infinity(), -x) : std::numeric_limits<double>::quiet_NaN();
  const double value = x > std::numeric_limits<float>::max() ? x : x < 0 ? left : right;
  return (x <= 0) & (fraction == 0) ? pole : value;
}
template <class T>
struct digamma {
  static constexpr int kCost = 45;
  TG_HD T operator()(T x) const {
    return static_cast<T>(sizeof(T) <= 4 ? digamma_of_float(static_cast<double>(x))
                                         : digamma_of(static_cast<double>(x)));
  }
};

// Hurwitz' zeta function sum over k >= 0 of (q + k)^-s, for s > 1 and q > 0: ten terms, then the Euler-Maclaurin
// formula with Bernoulli numbers B2 ... B16 (Johansson, Numerical Algorithms 69 (2015), section 2).
TG_HD inline double hurwitz_zeta(double s, double q) {
  double sum = 0;
  for (int k = 0; k < 10; ++k) sum += math::pow(q + k, -s);
  const double a = q + 10;
  const double power = math::pow(a, -s);
  sum += a * power / (s - 1) + 0.5 * power;
  constexpr double b2k_over_factorial[] = {1.0 / 12,
                                           -1.0 / 720,
                                           1.0 / 30240,
                                           -1.0 / 1209600,
                                           1.0 / 47900160,
                                           -691.0 / 1307674368000.0,
                                           1.0 / 74724249600.0,
                                           -3617.0 / 10670622842880000.0};
  double term = power / a * s;
  double factor = s;
  for (double c : b2k_over_factorial) {
    sum += c * term;
    term *= (factor + 1) * (factor + 2) / (a * a);
    factor += 2;
  }
  return sum;
}
// The sum over k >= 0 of (q + k)^-2 for q > 0, as digamma's: the recurrence, then the asymptotic series (Abramowitz and
// Stegun, 6.4.6 and 6.4.12). From 5 on the terms left out are below 2e-9, a thirtieth of float's last place; from 10 on
// below 1e-16.
template <class T>
TG_HD inline double trigamma_of(double q) {
  constexpr bool kShort = sizeof(T) <= 4;
  double sum = 0;
  for (; q < (kShort ? 5 : 10); q += 1) sum += 1 / (q * q);
  const double r = 1 / q, s = r * r;
  const double end = kShort ? 1.0 / 30 : 1.0 / 30 - s * (5.0 / 66 - s * (691.0 / 2730 - s * (7.0 / 6)));
  return sum + r + s / 2 + r * s * (1.0 / 6 - s * (1.0 / 30 - s * (1.0 / 42 - s * end)));
}
// The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x). Negative arguments for n = 1 by reflection
// (Abramowitz and Stegun, 6.4.7), for n > 1 by the recurrence 6.4.6.
template <class T>
TG_HD inline double polygamma_of(int64_t n, double x) {
  if (n == 1 && x > 0) return trigamma_of<T>(x);
  if (n == 0) return digamma_of(x);
  const double sign = n % 2 == 0 ? -1 : 1;
  double factorial = 1;
  for (int64_t i = 2; i <= n && i <= 171; ++i) factorial *= static_cast<double>(i);          // 171! is infinite
  if (x <= 0 && x == math::trunc(x)) return sign * std::numeric_limits<double>::infinity();  // from above
  if (x > std::numeric_limits<double>::max()) return 0;
  if (n == 1 && x < 0) {
    const double s = math::sin(math::kPi * (x - math::trunc(x)));
    return math::kPi * math::kPi / (s * s) - trigamma_of<T>(1 - x);
  }
  double shift = 0;
  if (x < -1000) return std::numeric_limits<double>::quiet_NaN();
  while (x < 0) {
    shift += math::pow(math::magnitude(x), -(static_cast<double>(n) + 1)) * (n % 2 == 0 ? -1 : 1);
    x += 1;
  }
  return sign * factorial * (shift + hurwitz_zeta(static_cast<double>(n) + 1, x));
}
template <class T>
struct polygamma {
  int64_t n;
  static constexpr int kCost = 200;
  TG_HD T operator()(T x) const { return static_cast<T>(polygamma_of<T>(n, static_cast<double>(x))); }
};

// Inverse of erf by the normal quantile, relative error about 1e-16: M. J. Wichura, Algorithm AS 241, Applied
// Statistics 37 (1988). With erfinv(x) = quantile((x + 1) / 2) / sqrt(2) its q is x / 2 and no digit is lost
// near zero.
template <int N>
TG_HD inline double polynomial(const double (&c)[N], double x) {
  double r = c[N - 1];
  for (int i = N - 2; i >= 0; --i) r = r * x + c[i];
  return r;
}
// The normal quantile at 1/2 + q, where `tail` is the smaller of the probabilities on both sides; without kFar it is
// 1e-11 at least, as float's, and there are no branches.
template <bool kFar = true>
TG_HD inline double normal_quantile(double q, double tail) {
  constexpr double a[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                          1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                          3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr double b[] = {1.0,
                          4.2313330701600911252e+1,
                          6.8718700749205790830e+2,
                          5.3941960214247511077e+3,
                          2.1213794301586595867e+4,
                          3.9307895800092710610e+4,
                          2.8729085735721942674e+4,
                          5.2264952788528545610e+3};
  constexpr double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                          3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                          2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double d[] = {1.0,
                          2.05319162663775882187e0,
                          1.67638483018380384940e0,
                          6.89767334985100004550e-1,
                          1.48103976427480074590e-1,
                          1.51986665636164571966e-2,
                          5.47593808499534494600e-4,
                          1.05075007164441684324e-9};
  constexpr double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                          2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                          2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double f[] = {1.0,
                          5.99832206555887937690e-1,
                          1.36929880922735805310e-1,
                          1.48753612908506148525e-2,
                          7.86869131145613259100e-4,
                          1.84631831751005468180e-5,
                          1.42151175831644588870e-7,
                          2.04426310338993978564e-15};
  if constexpr (!kFar) {
    const bool near = math::magnitude(q) <= 0.425;
    const double r = near ? 0.180625 - q * q : math::sqrt(-math::log(tail)) - 1.6;
    const double top = near ? q * polynomial(a, r) : math::copysign(polynomial(c, r), q);
    return top / (near ? polynomial(b, r) : polynomial(d, r));
  }
  if (math::magnitude(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  const double r = math::sqrt(-math::log(tail));
  const double value =
      r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5) / polynomial(f, r - 5);
  return math::copysign(value, q);
}
template <class T>
TG_HD inline double erfinv_of(double x) {
  constexpr double kSqrtHalf = 0.707106781186547524401;
  const double m = math::magnitude(x), inside = m < 1 ? x : 0;
  const double edge =
      m == 1 ? math::copysign(std::numeric_limits<double>::infinity(), x) : std::numeric_limits<double>::quiet_NaN();
  const double value = normal_quantile<(sizeof(T) > 4)>(inside / 2, (1 - math::magnitude(inside)) / 2) * kSqrtHalf;
  return m < 1 ? value : edge;
}
template <class T>
struct erfinv {
  static constexpr int kCost = 24;
  TG_HD T operator()(T x) const { return static_cast<T>(erfinv_of<T>(static_cast<double>(x))); }
};

// log(x / (1 - x)); a bound eps >= 0 keeps x within [eps, 1 - eps], a negative one leaves it alone.
template <class T>
struct logit {
  double eps;
  static constexpr int kCost = 10;
  TG_HD T operator()(T x) const {
    const T low = static_cast<T>(eps), high = static_cast<T>(1 - eps);
    const T bounded = x < low ? low : x > high ? high : x;
    const T p = eps < 0 ? x : bounded;
    return math::log(p / (T(1) - p));
  }
};
template <class T>
struct logit_backward {
  double eps;
  TG_HD T operator()(T grad, T x) const {
    const T low = eps < 0 ? T(0) : static_cast<T>(eps), high = eps < 0 ? T(1) : static_cast<T>(1 - eps);
    const T outside = eps < 0 ? std::numeric_limits<T>::quiet_NaN() : T(0);
    const T inner = grad / (x * (T(1) - x));
    return (x < low) | (x > high) ? outside : inner;
  }
};

// x log y, with 0 log y = 0 unless y is NaN.
template <class T>
struct xlogy {
  static constexpr int kCost = 8;
  TG_HD T operator()(T x, T y) const {
    const T l = x * math::log(y);
    return y != y ? y : x == T(0) ? T(0) : l;
  }
};
template <class T>
struct xlog1py {
  static constexpr int kCost = 8;
  TG_HD T operator()(T x, T y) const {
    const T l = x * log1p_of(y);
    return y != y ? y : x == T(0) ? T(0) : l;
  }
};
// scale times d^2 / 2 where |d| <= bound, and the line that goes on from there, for the difference d. Finite factors
// alone meet an infinite d, where a choice between two formulas would multiply infinity by 0.
template <class T>
struct huber {
  double bound, scale;
  TG_HD T operator()(T input, T target) const {
    const T d = input - target, within = math::clamp(d, T(-bound), T(bound));
    return within * T(scale) * (d - T(0.5) * within);
  }
};
template <class T>
struct huber_backward {
  double bound, scale;
  TG_HD T operator()(T grad, T input, T target) const {
    return grad * (math::clamp(T(input - target), T(-bound), T(bound)) * T(scale));
  }
};
// -(t log p + (1 - t) log(1 - p)) with the logarithms held above -100, and its derivative for p times `grad`: (p - t)
// over p (1 - p), which is held above 1e-12, so that both are finite where a sigmoid has saturated.
template <class T>
struct binary_cross_entropy {
  static constexpr int kCost = 18;
  TG_HD T operator()(T p, T t) const {
    const T hit = math::maximum(math::log(p), T(-100)), miss = math::maximum(math::log1p(-p), T(-100));
    return (t - T(1)) * miss - t * hit;
  }
};
template <class T>
struct binary_cross_entropy_backward {
  static constexpr int kCost = 3;
  TG_HD T operator()(T grad, T p, T t) const { return grad * (p - t) / math::maximum(p * (T(1) - p), T(1e-12)); }
};
// log(e^a + e^b) without overflow.
template <class T>
struct logaddexp {
  static constexpr int kCost = 16;
  TG_HD T operator()(T a, T b) const {
    if constexpr (is_complex_type<T>) {
      return log_add_exp(a, b);
    } else {
      const T m = math::maximum(a, b);
      const T l = m + math::log1p(math::exp(-math::magnitude(a - b)));
      return (a == b) & math::isinf(a) ? a : l;
    }
  }
};
template <class T>
struct logaddexp2 {
  static constexpr int kCost = 16;
  TG_HD T operator()(T a, T b) const {
    const T m = math::maximum(a, b);
    const T l = m + math::log1p(math::exp2(-math::magnitude(a - b))) * T(1.44269504088896340736);
    return (a == b) & math::isinf(a) ? a : l;
  }
};
// sin(pi x) / (pi x)
template <class T>
struct sinc {
  static constexpr int kCost = 8;
  TG_HD T operator()(T x) const {
    const T p = x * T(math::kPi);
    const T s = math::div(math::sin(p), p);
    return x == T(0) ? T(1) : s;
  }
};

}  // namespace tapegrad::fn
