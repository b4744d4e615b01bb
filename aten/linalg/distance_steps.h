// The steps of a p-norm over the differences of two points' coordinates: sum = step(sum, difference), starting from 0,
// then end(sum). For host and device.
#pragma once

#include <cmath>

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::distance {

template <class C>
TG_HD C sign_of(C d) {  // 0 for NaN
  return C(d > C(0)) - C(d < C(0));
}

struct SumItself {
  template <class C>
  TG_HD C end(C sum) const {
    return sum;
  }
};
struct Count : SumItself {  // p = 0: how many coordinates differ
  template <class C>
  TG_HD C step(C sum, C d) const {
    return sum + (d != C(0) ? C(1) : C(0));
  }
};
struct Manhattan : SumItself {
  template <class C>
  TG_HD C step(C sum, C d) const {
    return sum + math::magnitude(d);
  }
  // By how much a distance grows with a difference, times share(its gradient, itself).
  template <class C>
  TG_HD C share(C grad, C) const {
    return grad;
  }
  template <class C>
  TG_HD C slope(C share, C d, C) const {
    return share * sign_of(d);
  }
};
struct Euclid {
  template <class C>
  TG_HD C step(C sum, C d) const {
    return sum + d * d;
  }
  template <class C>
  TG_HD C end(C sum) const {
    return math::sqrt(sum);
  }
  template <class C>
  TG_HD C share(C grad, C distance) const {
    return distance == C(0) ? C(0) : grad / distance;
  }
  template <class C>
  TG_HD C slope(C share, C d, C) const {
    return share * d;
  }
};
struct Chebyshev : SumItself {  // p = infinity: every coordinate that is as far apart as the points counts in full
  template <class C>
  TG_HD C step(C sum, C d) const {
    return math::maximum(sum, math::magnitude(d));
  }
  template <class C>
  TG_HD C share(C grad, C) const {
    return grad;
  }
  template <class C>
  TG_HD C slope(C share, C d, C distance) const {
    const C s = share * sign_of(d);
    return math::magnitude(d) == distance ? s : C(0);
  }
};
struct Minkowski {
  double p;
  template <class C>
  TG_HD C step(C sum, C d) const {
    return sum + math::pow(math::magnitude(d), static_cast<C>(p));
  }
  template <class C>
  TG_HD C end(C sum) const {
    return math::pow(sum, static_cast<C>(1 / p));
  }
};

// f(steps) with the steps of the p-norm.
template <class F>
void dispatch(double p, const F& f) {
  if (p == 0) return f(Count());
  if (p == 1) return f(Manhattan());
  if (p == 2) return f(Euclid());
  if (std::isinf(p)) return f(Chebyshev());
  return f(Minkowski{p});
}

// The same for the norms that have slopes here.
template <class F>
void dispatch_slopes(double p, const F& f) {
  if (p == 1) return f(Manhattan());
  return p == 2 ? f(Euclid()) : f(Chebyshev());
}

}  // namespace tapegrad::distance
