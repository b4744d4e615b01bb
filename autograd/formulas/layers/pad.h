// Helpers for the gradients of padding.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Every number negated: the padding that undoes a padding.
inline DimVector negated(IntSpan values) {
  DimVector r(values);
  for (int64_t& v : r) v = -v;
  return r;
}

}  // namespace tapegrad
