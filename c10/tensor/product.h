// The number of elements of a shape that is known to be small enough (checked_numel checks it).
#pragma once

#include "tapegrad/c10/tensor/small_vector.h"

namespace tapegrad {

inline int64_t product(IntSpan sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

}  // namespace tapegrad
