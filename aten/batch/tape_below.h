// Whether gradients inside a vmap have to be recorded for those below it.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad::batch {

// Whether a tensor of one of this thread's levels stands for one that is part of a tape below. Never taken back.
TG_API bool tape_below() noexcept;

}  // namespace tapegrad::batch
