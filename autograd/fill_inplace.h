// In-place operators that give every element the same value (`one_value` in the op table), and views in place, which
// write none: elements of `self` may share memory, as those of an expanded tensor do.
#pragma once

#include "tapegrad/autograd/engine/node.h"

namespace tapegrad::autograd {

// check_inplace (node.h) without its check of overlap.
TG_API void check_filled(const Tensor& self, const char* op, bool recording);

// After an in-place view (`transpose_`), instead of rebase_history: self is turned itself, and what it may be a view of
// stays what it is.
TG_API void turn_view(const Tensor& self, const intrusive_ptr<Node>& node);

}  // namespace tapegrad::autograd
