// Helpers of the gradients of padding.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Every number with the other sign: the padding that undoes a padding.
inline DimVector negated(IntSpan values) {
  DimVector r(values);
  for (int64_t& v : r) v = -v;
  return r;
}

}  // namespace tapegrad
