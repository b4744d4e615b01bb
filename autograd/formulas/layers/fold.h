// Helpers for the gradients of fold and unfold.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

inline IntSpan last_two(IntSpan sizes) { return IntSpan(sizes.data() + sizes.size() - 2, 2); }

}  // namespace tapegrad
