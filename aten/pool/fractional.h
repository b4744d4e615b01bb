// Where the windows of fractional pooling begin (Graham, Fractional max-pooling, 2014, the pseudo-random sequences);
// for host and device.
#pragma once

#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad::pool {

// The first input element of window i of `out`. Of 16-bit tensors C is float: PyTorch rounds i + sample and its product
// to the 16 bits, so that windows of large inputs begin at every other element or further apart.
template <class C>
TG_HD int64_t fractional_start(C sample, int64_t i, int64_t in, int64_t out, int64_t kernel) {
  if (i == out - 1) return in - kernel;
  const C alpha = static_cast<C>(in - kernel) / static_cast<C>(out - 1);
  const int64_t at = static_cast<int64_t>((static_cast<C>(i) + sample) * alpha) - static_cast<int64_t>(sample * alpha);
  return at < 0 ? 0 : at > in - kernel ? in - kernel : at;
}

// Which of the random numbers [planes, spatial] is that of dimension d (of three, widened by leading ones). In two
// dimensions the first number is the width's, in three the depth's, as in PyTorch.
TG_HD inline int64_t fractional_sample(int64_t plane, int64_t d, int64_t spatial) {
  return plane * spatial + (spatial == 2 ? 2 - d : d);
}

}  // namespace tapegrad::pool
