// The operations on the rows of one place, in order: start from the target, step, finish. 16-bit formats are combined
// in float and rounded once.
#pragma once

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/cuda/launch/convert.h"

namespace tapegrad::cuda::steps {

template <class T>
using Compute = compute_t<T>;
template <class T>
TG_DEVICE Compute<T> widen(const T& x) {
  if constexpr (is_half_type<T>)
    return to_float(x);
  else
    return seen(x);
}
template <class T>
TG_DEVICE T narrow(const Compute<T>& x) {
  T result;
  if constexpr (is_half_type<T>)
    store_value(&result, x);
  else
    result = x;
  return result;
}

// Sums of any type, for reductions by groups of threads.
struct Plus {
  template <class C>
  TG_DEVICE C operator()(const C& a, const C& b) const {
    return math::add(a, b);
  }
};

template <class T>
struct Assign {
  TG_DEVICE T start(const T& x) const { return x; }
  TG_DEVICE T step(const T&, const T& x) const { return x; }
  TG_DEVICE void finish(T& to, const T& a, int64_t) const { to = a; }
};
template <class T>
struct Add {
  using C = Compute<T>;
  C alpha;
  TG_DEVICE C start(const T& x) const { return widen<T>(x); }
  TG_DEVICE C step(const C& a, const T& x) const { return math::add(a, math::mul(alpha, widen<T>(x))); }
  TG_DEVICE void finish(T& to, const C& a, int64_t) const { to = narrow<T>(a); }
};
enum class Kind : uint8_t { Sum, Mean, Product, Largest, Smallest };
// scatter_reduce: `fresh` leaves the target's own element out.
template <class T>
struct Reduce {
  using C = Compute<T>;
  Kind kind;
  bool fresh;
  C first;  // what `fresh` starts from
  TG_DEVICE C start(const T& x) const { return fresh ? first : widen<T>(x); }
  TG_DEVICE C step(const C& a, const T& given) const {
    const C x = widen<T>(given);
    if (kind == Kind::Sum || kind == Kind::Mean) return math::add(a, x);
    if (kind == Kind::Product) return math::mul(a, x);
    if constexpr (is_complex_type<C>) {
      return a;
    } else {  // NaN wins
      if (a != a) return a;
      if (x != x) return x;
      return (kind == Kind::Largest ? x > a : x < a) ? x : a;
    }
  }
  TG_DEVICE void finish(T& to, C a, int64_t n) const {
    if (kind == Kind::Mean) {
      const int64_t count = n + (fresh ? 0 : 1);
      if constexpr (std::is_integral_v<C>) {  // towards minus infinity, as floor division
        const int64_t v = static_cast<int64_t>(a);
        a = static_cast<C>(v / count - (v % count < 0));
      } else if constexpr (is_complex_type<C>) {
        a = C(a.real() / static_cast<typename C::value_type>(count),
              a.imag() / static_cast<typename C::value_type>(count));
      } else {
        a = a / static_cast<C>(count);
      }
    }
    to = narrow<T>(a);
  }
};

}  // namespace tapegrad::cuda::steps
