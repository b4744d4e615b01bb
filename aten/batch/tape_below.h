// Whether operators inside a vmap have to be recorded for the tapes below it.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad::batch {

// Whether a tensor of one of this thread's levels wraps one that is part of a tape below. Never reset to false.
TG_API bool tape_below() noexcept;

}  // namespace tapegrad::batch
