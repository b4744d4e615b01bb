// The parameters of a window over an image: kernel size, stride, padding, dilation. Kernels and libraries hold them in
// 32 bits.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::conv {

inline void check_not_too_large(const char* op, const char* name, IntSpan values) {
  for (const int64_t v : values)
    TG_CHECK(v <= INT32_MAX, Runtime, "{}: {} is too large, at most {} is possible: got {}", op, name, INT32_MAX,
             format_ints(values));
}

inline void check_window_numbers(const char* op, const char* name, IntSpan values, int64_t least) {
  for (const int64_t v : values)
    TG_CHECK(v >= least, Runtime, "{}: {} must be at least {}: got {}", op, name, least, format_ints(values));
  check_not_too_large(op, name, values);
}

}  // namespace tapegrad::conv
