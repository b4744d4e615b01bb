// Orthogonal polynomials by degree: Chebyshev's four kinds, Hermite's two, Laguerre's and Legendre's.
//
// The degree is a number cut to an integer; a negative one gives 0. Chebyshev's come from their closed forms
// (DLMF 18.5.1 to 18.5.4) above degree 6, so that no degree takes long, the others from their recurrences (18.9.1,
// table 18.9.1) up to a degree that bounds the time, NaN above.
#pragma once

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn {

namespace orthogonal {

// cos and sin of k theta over the first ones for |x| <= 1, and their hyperbolic forms beyond.
enum class Kind { T, U, V, W };

TG_HD inline double chebyshev_closed(Kind kind, double x, double n) {
  // V and W change places when x changes its sign: V_n(-x) = (-1)^n W_n(x). Near -1 both parts of V's quotient would
  // be 0.
  const double m = math::magnitude(x);
  const double sign = x < 0 && math::fmod(n, 2.0) == 1 ? -1 : 1;
  if (x < 0 && kind == Kind::V)
    kind = Kind::W;
  else if (x < 0 && kind == Kind::W)
    kind = Kind::V;
  if (m == 1) return sign * (kind == Kind::U ? n + 1 : kind == Kind::W ? 2 * n + 1 : 1);
  const double angle = m < 1 ? math::acos(m) : math::acosh(m);
  const auto cosine = [m](double x) { return m < 1 ? math::cos(x) : math::cosh(x); };
  const auto sine = [m](double x) { return m < 1 ? math::sin(x) : math::sinh(x); };
  switch (kind) {
    case Kind::T:
      return sign * cosine(n * angle);
    case Kind::U:
      return sign * sine((n + 1) * angle) / sine(angle);
    case Kind::V:
      return sign * cosine((n + 0.5) * angle) / cosine(angle / 2);
    case Kind::W:
      return sign * sine((n + 0.5) * angle) / sine(angle / 2);
  }
  return 0;
}
// Element n of a sequence: next(k, element k, element k - 1) gives element k + 1; element 0 is 1, and the one before 0.
// NaN where n is more than `most`, which bounds the time.
template <class F>
TG_HD inline double by_recurrence(double degree, double most, const F& next) {
  const double n = math::trunc(degree);
  if (n < 0) return 0;
  if (!(n <= most)) return std::numeric_limits<double>::quiet_NaN();
  double before = 0, here = 1;
  for (int k = 0; k < n; ++k) {
    const double after = next(k, here, before);
    before = here;
    here = after;
  }
  return here;
}
TG_HD inline double chebyshev(Kind kind, double x, double degree) {
  const double n = math::trunc(degree);
  if (n < 0) return 0;
  if (n != n || x != x) return std::numeric_limits<double>::quiet_NaN();
  if (n > 6) return chebyshev_closed(kind, x, n);
  double before = 1;
  double here = kind == Kind::T ? x : kind == Kind::U ? 2 * x : kind == Kind::V ? 2 * x - 1 : 2 * x + 1;
  if (n == 0) return before;
  for (int k = 1; k < n; ++k) {
    const double next = 2 * x * here - before;
    before = here;
    here = next;
  }
  return here;
}

TG_HD inline double hermite(bool physicist, double x, double degree) {
  const double factor = physicist ? 2 : 1;
  return by_recurrence(degree, 512,
                       [=](int k, double here, double before) { return factor * (x * here - k * before); });
}
TG_HD inline double laguerre(double x, double degree) {
  return by_recurrence(degree, 1e6, [x](int k, double here, double before) {
    return ((2.0 * k + 1 - x) * here - k * before) / (k + 1.0);
  });
}
TG_HD inline double legendre(double x, double degree) {
  return by_recurrence(degree, 1e6, [x](int k, double here, double before) {
    return ((2.0 * k + 1) * x * here - k * before) / (k + 1.0);
  });
}

}  // namespace orthogonal

#define TG_POLYNOMIAL(name, expression)             \
  template <class T>                                \
  struct name {                                     \
    static constexpr int kCost = 40;                \
    TG_HD T operator()(T point, T degree) const {   \
      using namespace orthogonal;                   \
      const double x = static_cast<double>(point);  \
      const double n = static_cast<double>(degree); \
      return static_cast<T>(expression);            \
    }                                               \
  };
TG_POLYNOMIAL(chebyshev_polynomial_t, chebyshev(Kind::T, x, n))
TG_POLYNOMIAL(chebyshev_polynomial_u, chebyshev(Kind::U, x, n))
TG_POLYNOMIAL(chebyshev_polynomial_v, chebyshev(Kind::V, x, n))
TG_POLYNOMIAL(chebyshev_polynomial_w, chebyshev(Kind::W, x, n))
TG_POLYNOMIAL(shifted_chebyshev_polynomial_t, chebyshev(Kind::T, 2 * x - 1, n))
TG_POLYNOMIAL(shifted_chebyshev_polynomial_u, chebyshev(Kind::U, 2 * x - 1, n))
TG_POLYNOMIAL(shifted_chebyshev_polynomial_v, chebyshev(Kind::V, 2 * x - 1, n))
TG_POLYNOMIAL(shifted_chebyshev_polynomial_w, chebyshev(Kind::W, 2 * x - 1, n))
TG_POLYNOMIAL(hermite_polynomial_h, hermite(true, x, n))
TG_POLYNOMIAL(hermite_polynomial_he, hermite(false, x, n))
TG_POLYNOMIAL(laguerre_polynomial_l, laguerre(x, n))
TG_POLYNOMIAL(legendre_polynomial_p, legendre(x, n))
#undef TG_POLYNOMIAL

}  // namespace tapegrad::fn
