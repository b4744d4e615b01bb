// The contents of memory that has not been written yet. Operators that return such memory (`empty` and its relatives,
// `resize_`) leave its contents as they are, unless the program asked for known values: then a result that depends on
// such memory shows it, as NaN or the largest integer. Any thread.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Whether known values are written; off at the start.
TG_API void set_fills_unset(bool on) noexcept;
TG_API bool fills_unset() noexcept;

// Writes NaN, the largest integer or true to every element of `t`, if that is on.
TG_API void fill_unset(const Tensor& t);

}  // namespace tapegrad
