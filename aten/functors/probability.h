// Functions of probability: the normal distribution's, the incomplete gamma functions, Hurwitz' zeta function for all
// real arguments, entropy. Computed in double.
#pragma once

#include "tapegrad/aten/functors/bessel_series.h"
#include "tapegrad/aten/functors/special.h"

namespace tapegrad::fn {

namespace probability {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kSqrtHalf = 0.707106781186547524401;

// exp(m^2) erfc(m) for m >= 0: (1 + 2 m) times it as a Chebyshev series in (m - 2.5) / (m + 2.5) (M. M. Shepherd and
// J. G. Laframboise, Mathematics of Computation 36 (1981)), with coefficients computed as bessel_series.h says.
template <class T>
TG_HD inline double right_erfcx(double m) {
  constexpr double kSeries[] = {
      1.1771189339755784,      0.014212740827323321,    -0.10037710257743795,    0.048384221974957707,
      -0.012607425531069104,   0.0016421555334706596,   5.2927052289800507e-5,   -5.1060883784098266e-5,
      2.371428558502003e-6,    1.5839410905182581e-6,   -1.2483958211750847e-7,  -6.0456573213360395e-8,
      4.0925941245210135e-9,   2.7374094237187244e-9,   -4.5886933716003756e-11, -1.3187750369729464e-10,
      -8.2680908061203317e-12, 5.9379251241790285e-12,  1.0596357288540175e-12,  -1.9892259921437084e-13,
      -8.4746531091109811e-14, -2.5183343701669511e-16, 4.9749719937912606e-15,  7.9883454287885684e-16,
      -1.7595071895673926e-16, -8.1563419075116741e-17};
  constexpr auto series = bessel::series<T, 14>(kSeries);
  if constexpr (sizeof(T) <= 4) {  // one division; infinity is beyond what float tells from it
    const double near = m > 1e60 ? 1e60 : m, root = near + 2.5, slope = 1 + 2 * near, r = 1 / (root * slope);
    return series(1 - 5 * slope * r) * root * r;
  }
  return series(1 - 5 / (m + 2.5)) / 2 / (0.5 + m);  // 2 m would overflow
}
// exp(sign x^2) for |x| up to 40, beyond which neither sign has a number for it. The square is taken with its rounding
// error, which the exponential would magnify.
TG_HD inline double exp_square(double x, double sign) {
  const double m = math::magnitude(x), near = m > 40 ? 40 : m, square = near * near;
  return math::exp(sign * square) * (1 + sign * __builtin_fma(near, near, -square));
}
// exp(x^2) erfc(x); left of 0 by erfc(x) = 2 - erfc(-x).
template <class T>
TG_HD inline double erfcx(double x) {
  const double right = right_erfcx<T>(math::magnitude(x));
  return x < 0 ? 2 * exp_square(x, 1) - right : right;
}
// Half of exp(-x^2 / 2) right_erfcx(|x| / sqrt 2) is the smaller one of the probabilities on both sides.
template <class T>
TG_HD inline double ndtr(double x) {
  const double half = right_erfcx<T>(math::magnitude(x) * kSqrtHalf) / 2;
  const double outside = half * exp_square(x * kSqrtHalf, -1);
  return x < 0 ? outside : 1 - outside;
}
template <class T>
TG_HD inline double log_ndtr(double x) {
  const double half = right_erfcx<T>(math::magnitude(x) * kSqrtHalf) / 2;
  const double left = math::log(half) - x * x / 2, right = math::log1p(-half * exp_square(x * kSqrtHalf, -1));
  return x < 0 ? left : right;
}
template <class T>
TG_HD inline double ndtri(double p) {
  if (!(p >= 0 && p <= 1)) return kNaN;
  if (p == 0) return -kInfinity;
  if (p == 1) return kInfinity;
  return normal_quantile(p - 0.5, p < 0.5 ? p : 1 - p);
}

// log(1 + u) - u without cancellation: the series of artanh in u / (2 + u) near zero (DLMF 4.6.4).
TG_HD inline double log1p_minus(double u) {
  if (math::magnitude(u) > 0.3) return math::log1p(u) - u;
  const double r = u / (2 + u), square = r * r;
  double sum = 0;
  for (int k = 15; k > 0; --k) sum = (sum + 1.0 / (2 * k + 1)) * square;
  return r * (2 * sum - u);
}
// log Gamma(a) - ((a - 1/2) log a - a + log(2 pi) / 2) for a >= 10 (DLMF 5.11.1).
TG_HD inline double stirling_rest(double a) {
  const double s = 1 / (a * a);
  return (1.0 / 12 - s * (1.0 / 360 - s * (1.0 / 1260 - s * (1.0 / 1680 - s * (1.0 / 1188 - s * 691.0 / 360360))))) / a;
}
// x^a e^-x / Gamma(a + 1); for large a from the distance of x from a, as the parts nearly cancel.
TG_HD inline double gamma_density(double a, double x) {
  if (a < 10) return math::exp(a * math::log(x) - x - math::lgamma(a + 1));
  const double u = (x - a) / a;
  return math::exp(a * log1p_minus(u) - stirling_rest(a)) / math::sqrt(2 * math::kPi * a);
}
// The regularised incomplete gamma functions (P the lower, Q the upper) for a > 0 and x > 0: the series DLMF 8.11.4
// left of a + 1, the continued fraction 8.9.2 (by Lentz's method) right of it. From a = 2e5, where both need thousands
// of steps, Temme's uniform expansion 8.12.3 with two terms, 8.12.7 to 8.12.11, whose error is of the order 1/a^2.
TG_HD inline double incomplete_gamma(double a, double x, bool upper) {
  if (a > 2e5) {
    const double mu = (x - a) / a;
    const double half_square = -log1p_minus(mu);  // eta^2 / 2
    const double eta = mu < 0 ? -math::sqrt(2 * half_square) : math::sqrt(2 * half_square);
    double c0, c1;
    if (math::magnitude(eta) < 0.05) {
      c0 = -1.0 / 3 + eta * (1.0 / 12 + eta * (-2.0 / 135 + eta * (1.0 / 864 + eta / 2835)));
      c1 = -1.0 / 540 + eta * (-1.0 / 288 + eta / 378);
    } else {
      c0 = 1 / mu - 1 / eta;
      c1 = 1 / (eta * eta * eta) - 1 / (mu * mu * mu) - 1 / (mu * mu) - 1 / (12 * mu);
    }
    const double rest = math::exp(-a * half_square) / math::sqrt(2 * math::kPi * a) * (c0 + c1 / a);
    const double scaled = eta * math::sqrt(a / 2);
    return upper ? 0.5 * math::erfc(scaled) + rest : 0.5 * math::erfc(-scaled) - rest;
  }
  const double density = gamma_density(a, x);
  // For a near 0 the upper part is small, too, from where on the fraction converges: 1 - lower would lose it.
  if (x < a + 1 && !(upper && a < 1 && x >= 1)) {
    double term = 1, sum = 1;
    for (int k = 1; k < 20000; ++k) {
      term *= x / (a + k);
      sum += term;
      if (term < 1e-17 * sum) break;
    }
    const double lower = density * sum;
    return upper ? 1 - lower : lower;
  }
  constexpr double tiny = 1e-300;
  double b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;
  for (int k = 1; k < 20000; ++k) {
    const double numerator = -k * (k - a);
    b += 2;
    d = numerator * d + b;
    if (math::magnitude(d) < tiny) d = tiny;
    c = b + numerator / c;
    if (math::magnitude(c) < tiny) c = tiny;
    d = 1 / d;
    h *= d * c;
    if (math::magnitude(d * c - 1) < 1e-16) break;
  }
  const double q = density * a * h;
  return upper ? q : 1 - q;
}
TG_HD inline double regularised_gamma(double a, double x, bool upper) {
  if (!(a >= 0 && x >= 0)) return kNaN;
  if (a == 0) return x > 0 ? (upper ? 0 : 1) : kNaN;
  if (x == 0) return upper ? 1 : 0;
  if (a == kInfinity) return x == kInfinity ? kNaN : upper ? 1 : 0;
  if (x == kInfinity) return upper ? 0 : 1;
  return incomplete_gamma(a, x, upper);
}
TG_HD inline double igamma(double a, double x) { return regularised_gamma(a, x, false); }
TG_HD inline double igammac(double a, double x) { return regularised_gamma(a, x, true); }

// Hurwitz' zeta function. Left of zero, for integer s, the terms before and behind zero are two sums of positive ones.
TG_HD inline double zeta(double s, double q) {
  if (s != s || q != q) return kNaN;
  if (s == 1) return kInfinity;
  if (s < 1) return kNaN;
  if (q > 0) return q == kInfinity ? 0 : hurwitz_zeta(s, q);
  if (q == math::floor(q)) return kInfinity;
  if (s != math::floor(s)) return kNaN;
  const double steps = math::floor(-q);
  const double nearest = -q - steps;  // the distance of the last term before zero
  const double before = hurwitz_zeta(s, nearest) - hurwitz_zeta(s, nearest + steps + 1);
  return (math::fmod(s, 2.0) == 0 ? before : -before) + hurwitz_zeta(s, 1 - nearest);
}

}  // namespace probability

#define TG_PROBABILITY(name, cost)                                                                         \
  template <class T>                                                                                       \
  struct name {                                                                                            \
    static constexpr int kCost = cost;                                                                     \
    TG_HD T operator()(T x) const { return static_cast<T>(probability::name<T>(static_cast<double>(x))); } \
  };
TG_PROBABILITY(erfcx, 45)
TG_PROBABILITY(ndtr, 45)
TG_PROBABILITY(log_ndtr, 45)
TG_PROBABILITY(ndtri, 30)
#undef TG_PROBABILITY

#define TG_PROBABILITY2(name, cost)                                                             \
  template <class T>                                                                            \
  struct name {                                                                                 \
    static constexpr int kCost = cost;                                                          \
    TG_HD T operator()(T a, T x) const {                                                        \
      return static_cast<T>(probability::name(static_cast<double>(a), static_cast<double>(x))); \
    }                                                                                           \
  };
TG_PROBABILITY2(igamma, 300)
TG_PROBABILITY2(igammac, 300)
TG_PROBABILITY2(zeta, 200)
#undef TG_PROBABILITY2

// -x log x; 0 at 0, minus infinity below.
template <class T>
struct entr {
  static constexpr int kCost = 8;
  TG_HD T operator()(T x) const {
    const T l = -x * math::log(x);
    return x != x ? x : x > T(0) ? l : x == T(0) ? T(0) : -std::numeric_limits<T>::infinity();
  }
};

}  // namespace tapegrad::fn
