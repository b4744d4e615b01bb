// log(e^a + e^b) of complex numbers, for logaddexp and the running sums of logcumsumexp, on host and device.
#pragma once

#include <complex>
#include <limits>

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn {

// The number with the larger real part is taken out of the logarithm, so the imaginary part continues from that
// number's and is not reduced to (-pi, pi]: running sums do not jump by 2 pi. A NaN in either part of either number
// takes both parts of the result; of two log(0) the second is the result, whatever its angle.
template <class R>
TG_HD std::complex<R> log_add_exp(std::complex<R> a, std::complex<R> b) {
  if (math::isnan(a) || math::isnan(b)) {
    const R nan = std::numeric_limits<R>::quiet_NaN();
    return {nan, nan};
  }
  if (a.real() == b.real() && math::isinf(a.real()))
    return a.real() < R(0) ? b : math::log(math::exp(b) + math::exp(a));
  const bool less = a.real() < b.real();
  const std::complex<R> most = less ? b : a, least = less ? a : b;
  return most + math::log1p(math::exp(least - most));
}

}  // namespace tapegrad::fn
