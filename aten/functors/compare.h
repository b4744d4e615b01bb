// Comparisons, logic, selection and tests of special values. Most return bool.
#pragma once

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn {

#define TG_COMPARE(name, op)                                 \
  template <class T>                                         \
  struct name {                                              \
    TG_HD bool operator()(T a, T b) const { return a op b; } \
  };
TG_COMPARE(eq, ==)
TG_COMPARE(ne, !=)
TG_COMPARE(lt, <)
TG_COMPARE(le, <=)
TG_COMPARE(gt, >)
TG_COMPARE(ge, >=)
#undef TG_COMPARE

template <class T>
struct logical_and {
  TG_HD bool operator()(T a, T b) const { return (a != T(0)) & (b != T(0)); }
};
template <class T>
struct logical_or {
  TG_HD bool operator()(T a, T b) const { return (a != T(0)) | (b != T(0)); }
};
template <class T>
struct logical_xor {
  TG_HD bool operator()(T a, T b) const { return (a != T(0)) != (b != T(0)); }
};
template <class T>
struct logical_not {
  TG_HD bool operator()(T a) const { return a == T(0); }
};

template <class T>
struct isnan {
  TG_HD bool operator()(T a) const { return math::isnan(a); }
};
template <class T>
struct isinf {
  TG_HD bool operator()(T a) const { return math::isinf(a); }
};
template <class T>
struct isfinite {
  TG_HD bool operator()(T a) const { return math::isfinite(a); }
};
template <class T>
struct isposinf {
  TG_HD bool operator()(T a) const { return math::isinf(a) && a > T(0); }
};
template <class T>
struct isneginf {
  TG_HD bool operator()(T a) const { return math::isinf(a) && a < T(0); }
};
template <class T>
struct signbit {
  TG_HD bool operator()(T a) const {
    if constexpr (std::is_floating_point_v<T>)
      return math::copysign(T(1), a) < 0;
    else
      return a < T(0);
  }
};

// |a - b| <= atol + rtol |b|; equal infinities are close.
template <class T>
struct isclose {
  double rtol, atol;
  bool equal_nan;
  TG_HD bool operator()(T a, T b) const {
    if (a == b) return true;
    if (equal_nan && math::isnan(a) && math::isnan(b)) return true;
    if constexpr (std::is_integral_v<T>) {
      const double x = static_cast<double>(a), y = static_cast<double>(b);
      return math::abs(x - y) <= atol + math::abs(rtol * y);
    } else {
      using R = math::real_t<T>;
      const R allowed = static_cast<R>(atol) + static_cast<R>(rtol) * math::abs(b);
      const R distance = math::abs(a - b);
      return math::isfinite(distance) && distance <= allowed;
    }
  }
};

template <class T>
struct where {
  TG_HD T operator()(T condition, T a, T b) const { return condition != T(0) ? a : b; }
};
template <class T>
struct masked_fill {
  TG_HD T operator()(T x, T mask, T value) const { return mask != T(0) ? value : x; }
};
template <class T>
struct heaviside {
  TG_HD T operator()(T x, T at_zero) const {
    if (math::isnan(x)) return x;
    return x == T(0) ? at_zero : T(x > T(0));
  }
};
template <class T>
struct nan_to_num {
  double nan, posinf, neginf;
  TG_HD T operator()(T x) const {
    if constexpr (is_complex_type<T>) {
      const nan_to_num<typename T::value_type> part{nan, posinf, neginf};
      return T(part(x.real()), part(x.imag()));
    } else if constexpr (std::is_floating_point_v<T>) {
      const T inf = std::numeric_limits<T>::infinity();
      return x != x ? static_cast<T>(nan) : x == inf ? static_cast<T>(posinf) : x == -inf ? static_cast<T>(neginf) : x;
    } else {
      return x;
    }
  }
};

}  // namespace tapegrad::fn
