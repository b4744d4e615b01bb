// Helpers for the gradients of pooling.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

inline IntSpan last_of(IntSpan sizes, int64_t n) {
  return IntSpan(sizes.data() + sizes.size() - static_cast<size_t>(n), static_cast<size_t>(n));
}

}  // namespace tapegrad
