// The steps of a p-norm over the differences of two points' coordinates: sum = step(sum, difference), starting from 0,
// then end(sum). For host and device.
#pragma once

#include <cmath>

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::distance {

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
};
struct Chebyshev : SumItself {  // p = infinity
  template <class C>
  TG_HD C step(C sum, C d) const {
    return math::maximum(sum, math::magnitude(d));
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

}  // namespace tapegrad::distance
