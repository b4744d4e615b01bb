// Exponentials, logarithms, trigonometry, rounding.
#pragma once

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn {

#define TG_UNARY(name, cost)                                \
  template <class T>                                        \
  struct name {                                             \
    static constexpr int kCost = cost;                      \
    TG_HD T operator()(T x) const { return math::name(x); } \
  };
TG_UNARY(exp2, 6)
TG_UNARY(expm1, 8)
TG_UNARY(log2, 8)
TG_UNARY(log10, 8)
TG_UNARY(sqrt, 2)
TG_UNARY(sin, 8)
TG_UNARY(cos, 8)
TG_UNARY(tan, 12)
TG_UNARY(asin, 10)
TG_UNARY(acos, 10)
TG_UNARY(atan, 10)
TG_UNARY(sinh, 12)
TG_UNARY(cosh, 12)
TG_UNARY(tanh, 12)
TG_UNARY(atanh, 14)
TG_UNARY(erfc, 14)
#undef TG_UNARY

// SLEEF's log1p gives infinity close to the largest number, its asinh and acosh from the root of that on: there
// log(1 + x) is log(x / 1024) + log 1024, and the others log(2 x). Asking `far` twice, g++ would take two logarithms.
template <class T>
TG_HD inline T log1p_of(T x) {
  if constexpr (is_complex_type<T>) {
    return math::log1p(x);
  } else {
    const T scaled = x > T(1e30) ? x * T(0.0009765625) : x;
    return math::log1p(scaled) + (scaled != x ? T(6.93147180559945309417) : T(-0.0));
  }
}
template <class T>
struct log1p {
  static constexpr int kCost = 10;
  TG_HD T operator()(T x) const { return log1p_of(x); }
};
template <class T>
struct asinh {
  static constexpr int kCost = 22;
  TG_HD T operator()(T x) const {
    if constexpr (is_complex_type<T>) {
      return math::asinh(x);
    } else {
      const T far = math::copysign(math::log(math::magnitude(x)) + T(0.69314718055994530942), x);
      const T near = math::asinh(x);
      return math::magnitude(x) > T(1e10) ? far : near;
    }
  }
};
template <class T>
struct acosh {
  static constexpr int kCost = 22;
  TG_HD T operator()(T x) const {
    if constexpr (is_complex_type<T>) {
      return math::acosh(x);
    } else {
      const T far = math::log(x) + T(0.69314718055994530942), near = math::acosh(x);
      return x > T(1e10) ? far : near;
    }
  }
};

template <class T>
struct erf {
  static constexpr int kCost = 12;
  TG_HD T operator()(T x) const { return math::erf(x); }
  TG_HALF_PRECISION(8, tg_short_erff(x))
};
template <class T>
struct exp {
  static constexpr int kCost = 6;
  TG_HD T operator()(T x) const { return math::exp(x); }
  TG_HALF_PRECISION(6, tg_short_expf(x))
};
template <class T>
struct log {
  static constexpr int kCost = 8;
  TG_HD T operator()(T x) const { return math::log(x); }
  TG_HALF_PRECISION(6, tg_short_logf(x))
};
template <class T>
struct rsqrt {
  static constexpr int kCost = 2;
  TG_HD T operator()(T x) const { return math::div(T(1), math::sqrt(x)); }
};
template <class T>
struct atan2 {
  static constexpr int kCost = 12;
  TG_HD T operator()(T y, T x) const { return math::atan2(y, x); }
};
template <class T>
struct hypot {
  static constexpr int kCost = 6;
  TG_HD T operator()(T a, T b) const { return math::hypot(a, b); }
};

// Rounding leaves integers alone.
#define TG_ROUND(name, function)           \
  template <class T>                       \
  struct name {                            \
    TG_HD T operator()(T x) const {        \
      if constexpr (std::is_integral_v<T>) \
        return x;                          \
      else                                 \
        return math::function(x);          \
    }                                      \
  };
TG_ROUND(floor, floor)
TG_ROUND(ceil, ceil)
TG_ROUND(trunc, trunc)
TG_ROUND(round, rint)  // halves to the even neighbour
#undef TG_ROUND

// Rounds to a number of decimal places (to tens, hundreds, ... for negative ones).
template <class T>
struct round_decimals {
  int64_t decimals;
  TG_HD T operator()(T x) const {
    if constexpr (std::is_integral_v<T>) {
      return x;
    } else {
      T ten = 1;
      for (int64_t i = decimals < 0 ? -decimals : decimals; i > 0; --i) ten *= T(10);
      return decimals < 0 ? math::rint(x / ten) * ten : math::rint(x * ten) / ten;
    }
  }
};
template <class T>
struct frac {
  TG_HD T operator()(T x) const { return x - math::trunc(x); }
};
template <class T>
struct copysign {
  TG_HD T operator()(T a, T b) const { return math::copysign(a, b); }
};

// x 2^n for an integer n, rounded once: 2^n alone may lie outside of T. What is beyond the bounds of n gives 0 or
// infinity for every x.
template <class T>
struct ldexp {
  TG_HD T operator()(T x, T n) const {
    const T bound = T(4096);
    return std::ldexp(x, static_cast<int>(n < -bound ? -bound : n > bound ? bound : n));
  }
};

// The angle of a number in the complex plane: 0 or pi for a real one.
template <class T>
struct angle {
  static constexpr int kCost = 4;
  TG_HD math::real_t<T> operator()(T x) const {
    if constexpr (is_complex_type<T>)
      return math::atan2(x.imag(), x.real());
    else
      return x < T(0) ? T(math::kPi) : x == x ? T(0) : x;
  }
};
template <class T>
struct conj_physical {
  TG_HD T operator()(T x) const { return math::conj(x); }
};
template <class T>
struct deg2rad {
  TG_HD T operator()(T x) const { return x * T(math::kPi / 180); }
};
template <class T>
struct rad2deg {
  TG_HD T operator()(T x) const { return x * T(180 / math::kPi); }
};

}  // namespace tapegrad::fn
